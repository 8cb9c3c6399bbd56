"""The detectron2 engine: detectron2's own detector, the reference for both engines.

detectron2 0.6, https://github.com/facebookresearch/detectron2. This module sets all values of its
configuration and reads no file of its model zoo. Layers without an option are added to the network
that detectron2 builds. These are norm layers in the RPN head and the keypoint head, after layer4
(MoCo) and before the RPN (CO2), and a layer4 of basic blocks as box head. The network is registered
in detectron2 as a meta-architecture with additional configuration keys, so that detectron2 can open
a trained detector: `write_files` and `load_config`.

detectron2 calls torchvision's layer1 res2 and stores norm layers inside convolutions. Its
bottlenecks have the stride in the 3x3 convolution only if STRIDE_IN_1X1 is False. Shapes do not
show this, so `transfer.finetuning.verify` compares features.
"""

import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pretrain.running.atomic_files import write_text, write_whole
from transfer.detection.detector import Detector, ResizedDetections, Sample, scale_gradient
from transfer.detection.recipe import DetectorRecipe
from transfer.encoders.naming import DETECTRON2
from transfer.finetuning.norms import Norm

STAGES = {"layer1": "res2", "layer2": "res3", "layer3": "res4", "layer4": "res5"}

ADDED_LAYERS = {
    "RPN_HEAD_NORM": "",
    "KEYPOINT_HEAD_NORM": "",
    "RES5_NORM": "",
    "RPN_INPUT_NORM": "",
    "RPN_INPUT_GRADIENT": 1.0,
}
"""Configuration keys in MODEL.SSL_BENCHMARK; the default values add no layer.

Norm layers have the names of MODEL.RESNETS.NORM: in the RPN head, in the keypoint head, after
layer4 (MoCo and CO2) and before the RPN (CO2). RPN_INPUT_GRADIENT is the factor of the gradient
from the RPN into the shared map."""
CONFIG_FILE, WEIGHTS_FILE = "config.yaml", "model.pth"
"""Files of a trained detector for detectron2."""
DETECTRON2_DATASETS = {
    "coco17": (80, ("coco_2017_train",), ("coco_2017_val",)),
    "coco17_keypoints": (1, ("keypoints_coco_2017_train",), ("keypoints_coco_2017_val",)),
    "voc0712": (20, ("voc_2007_trainval", "voc_2012_trainval"), ("voc_2007_test",)),
}
"""Number of classes, and detectron2's names of the splits, by dataset key."""


@contextmanager
def silence_known_warnings() -> Iterator[None]:
    """Silence warnings that detectron2 0.6 causes with newer libraries.

    They appear at import and in forward passes.
    """
    with warnings.catch_warnings():
        for message in (
            r"`torch\.jit\.\w+` is deprecated",
            r".*torch\.meshgrid: in an upcoming release",
            r".*__array__ implementation doesn't accept a copy keyword",
        ):
            warnings.filterwarnings("ignore", message=message)
        tracing = logging.getLogger("torch.fx._symbolic_trace")
        level = tracing.level
        tracing.setLevel(logging.ERROR)
        try:
            yield
        finally:
            tracing.setLevel(level)


def to_detectron2(
    state_dict: Mapping[str, Tensor], neck: Literal["fpn", "c4"]
) -> dict[str, Tensor]:
    """Return the tensors with the names of detectron2's detector.

    state_dict: torchvision's names, without classifier. For c4, layer4 is part of the box head.
    """
    renamed = {}
    for name, tensor in state_dict.items():
        new_name = DETECTRON2.rename(name)
        prefix = "backbone.bottom_up." if neck == "fpn" else "backbone."
        if neck == "c4" and new_name.startswith("res5."):
            prefix = "roi_heads."
        renamed[prefix + new_name] = tensor
    return renamed


def build_detector(
    recipe: DetectorRecipe, *, arch: str, num_classes: int, norm: Norm
) -> "Detectron2Detector":
    """Return a new detector with random weights on the CPU."""
    with silence_known_warnings():
        settings = config(recipe, arch=arch, num_classes=num_classes, norm=norm)
        return Detectron2Detector(rcnn_with_added_layers(settings), recipe, settings)


def get_cfg() -> Any:
    """Return detectron2's default configuration with keys for the added layers.

    The network with these layers is registered as a meta-architecture.
    """
    with silence_known_warnings():
        from detectron2.config import CfgNode
        from detectron2.config import get_cfg as default_cfg
        from detectron2.modeling import META_ARCH_REGISTRY

    if rcnn_with_added_layers.__name__ not in META_ARCH_REGISTRY:
        META_ARCH_REGISTRY.register(rcnn_with_added_layers)
    c = default_cfg()
    c.MODEL.META_ARCHITECTURE = rcnn_with_added_layers.__name__
    c.MODEL.SSL_BENCHMARK = CfgNode(ADDED_LAYERS)
    return c


def load_config(path: str | Path) -> Any:
    """Return the configuration of a trained detector, to open it with detectron2.

    path: config.yaml from `write_files`. The weights are in model.pth next to it.
    Example: `DefaultPredictor(load_config("detectron2/config.yaml"))(image)`.
    """
    c = get_cfg()
    c.merge_from_file(str(path))
    c.MODEL.WEIGHTS = str(Path(path).parent / WEIGHTS_FILE)
    return c


def config(recipe: DetectorRecipe, *, arch: str, num_classes: int, norm: Norm) -> Any:
    """Return the recipe as detectron2's CfgNode."""
    c = get_cfg()
    depth, is_pyramid = int(arch.removeprefix("resnet")), recipe.neck == "fpn"
    c.INPUT.FORMAT = "RGB"
    c.INPUT.MIN_SIZE_TRAIN, c.INPUT.MIN_SIZE_TEST = recipe.train_short_px, recipe.test_short_px
    c.INPUT.MAX_SIZE_TRAIN = c.INPUT.MAX_SIZE_TEST = recipe.long_px
    c.DATALOADER.ASPECT_RATIO_GROUPING = recipe.group_by_aspect
    model = c.MODEL
    model.DEVICE = "cpu"
    model.PIXEL_MEAN = [255 * value for value in recipe.pixel_mean]
    model.PIXEL_STD = [255 * value for value in recipe.pixel_std]
    # the network
    model.BACKBONE.FREEZE_AT = 0
    model.RESNETS.DEPTH = depth
    model.RESNETS.RES2_OUT_CHANNELS = 64 if depth < 50 else 256
    model.RESNETS.STRIDE_IN_1X1 = False
    model.RESNETS.NORM = norm
    if is_pyramid:
        model.BACKBONE.NAME = "build_resnet_fpn_backbone"
        model.RESNETS.OUT_FEATURES = model.FPN.IN_FEATURES = list(STAGES.values())
        model.FPN.OUT_CHANNELS = recipe.fpn_channels
        model.FPN.NORM = norm if "fpn" in recipe.normed else ""
        model.RPN.IN_FEATURES = ["p2", "p3", "p4", "p5", "p6"]
        model.ROI_HEADS.IN_FEATURES = ["p2", "p3", "p4", "p5"]
    else:
        model.BACKBONE.NAME = "build_resnet_backbone"
        model.RESNETS.OUT_FEATURES = ["res4"]
        model.RPN.IN_FEATURES = model.ROI_HEADS.IN_FEATURES = ["res4"]
    # anchors and proposals
    sizes = recipe.anchor_sizes_px
    model.ANCHOR_GENERATOR.SIZES = [[s] for s in sizes] if is_pyramid else [list(sizes)]
    model.ANCHOR_GENERATOR.ASPECT_RATIOS = [list(recipe.anchor_ratios)]
    rpn = model.RPN
    rpn.IOU_THRESHOLDS = list(recipe.rpn_iou)
    rpn.BATCH_SIZE_PER_IMAGE = recipe.rpn_samples
    rpn.POSITIVE_FRACTION = recipe.rpn_positive_share
    rpn.PRE_NMS_TOPK_TRAIN, rpn.PRE_NMS_TOPK_TEST = recipe.rpn_candidates
    rpn.POST_NMS_TOPK_TRAIN, rpn.POST_NMS_TOPK_TEST = recipe.rpn_proposals
    rpn.NMS_THRESH = recipe.rpn_nms_iou
    rpn.LOSS_WEIGHT = recipe.rpn_gradient_factor if recipe.rpn_gradient == "loss_weight" else 1.0
    # heads
    heads, box = model.ROI_HEADS, model.ROI_BOX_HEAD
    heads.NAME = "StandardROIHeads" if is_pyramid else "Res5ROIHeads"
    heads.NUM_CLASSES = num_classes
    heads.IOU_THRESHOLDS = [recipe.roi_iou]
    heads.BATCH_SIZE_PER_IMAGE = recipe.roi_samples
    heads.POSITIVE_FRACTION = recipe.roi_positive_share
    heads.SCORE_THRESH_TEST, heads.NMS_THRESH_TEST = recipe.min_score, recipe.nms_iou
    box.BBOX_REG_WEIGHTS = recipe.box_weights
    box.SMOOTH_L1_BETA = recipe.box_smooth_l1_beta
    box.POOLER_RESOLUTION = recipe.box_pool
    if is_pyramid:
        box.NAME = "FastRCNNConvFCHead"
        box.NUM_CONV, box.NUM_FC = recipe.box_head_convs, recipe.box_head_fcs
        box.CONV_DIM, box.FC_DIM = recipe.box_head_conv_channels, recipe.box_head_fc_channels
        box.NORM = norm if "box_head" in recipe.normed else ""
        model.MASK_ON = recipe.finds == "masks"
        mask = model.ROI_MASK_HEAD
        mask.POOLER_RESOLUTION = 14
        mask.NUM_CONV, mask.CONV_DIM = 4, recipe.mask_head_channels
        mask.NORM = norm if "mask_head" in recipe.normed else ""
        model.KEYPOINT_ON = recipe.finds == "keypoints"
        keypoint = model.ROI_KEYPOINT_HEAD
        keypoint.POOLER_RESOLUTION = 14
        keypoint.CONV_DIMS = (recipe.keypoint_head_channels,) * 8
        keypoint.NUM_KEYPOINTS = 17
    # layers that detectron2 has no option for
    added = model.SSL_BENCHMARK
    if "rpn_head" in recipe.normed:
        added.RPN_HEAD_NORM = norm
    if "keypoint_head" in recipe.normed and recipe.finds == "keypoints":
        added.KEYPOINT_HEAD_NORM = norm
    if recipe.extra_norms != "none":
        added.RES5_NORM = norm
    if recipe.extra_norms == "co2":
        added.RPN_INPUT_NORM = norm
    if recipe.rpn_gradient == "scale_input":
        added.RPN_INPUT_GRADIENT = recipe.rpn_gradient_factor
    # training options for detectron2's loop, which we do not use
    solver = c.SOLVER
    solver.IMS_PER_BATCH = recipe.batch_size
    solver.BASE_LR, solver.MOMENTUM = recipe.learning_rate, recipe.sgd_momentum
    solver.WEIGHT_DECAY, solver.WEIGHT_DECAY_NORM = recipe.weight_decay, 0.0
    solver.MAX_ITER, solver.STEPS = recipe.iterations, recipe.milestones
    solver.WARMUP_ITERS, solver.WARMUP_FACTOR = recipe.warmup_iterations, recipe.warmup_factor
    c.TEST.DETECTIONS_PER_IMAGE = recipe.detections
    c.TEST.PRECISE_BN.ENABLED = recipe.precise_norm_batches > 0
    c.TEST.PRECISE_BN.NUM_ITER = recipe.precise_norm_batches
    return c


def rcnn_with_added_layers(cfg: Any) -> Any:
    """Return detectron2's GeneralizedRCNN with the layers of MODEL.SSL_BENCHMARK.

    MODEL.META_ARCHITECTURE is the name of this function, with which detectron2 builds the network.
    """
    from detectron2.layers import get_norm
    from detectron2.modeling.meta_arch import GeneralizedRCNN

    rcnn = GeneralizedRCNN(cfg)
    resnet, added = cfg.MODEL.RESNETS, cfg.MODEL.SSL_BENCHMARK
    if added.RPN_HEAD_NORM:
        _add_norm(rcnn.proposal_generator.rpn_head.conv, added.RPN_HEAD_NORM)
    if added.KEYPOINT_HEAD_NORM:
        for number in range(1, 9):
            convolution = getattr(rcnn.roi_heads.keypoint_head, f"conv_fcn{number}")
            _add_norm(convolution, added.KEYPOINT_HEAD_NORM)
    if cfg.MODEL.ROI_HEADS.NAME == "Res5ROIHeads" and resnet.DEPTH in (18, 34):
        rcnn.roi_heads.res5 = _basic_res5(2 if resnet.DEPTH == 18 else 3, resnet.NORM)
    if added.RES5_NORM:
        norm = get_norm(added.RES5_NORM, 8 * resnet.RES2_OUT_CHANNELS)
        rcnn.roi_heads.res5.add_module("norm", norm)
    if added.RPN_INPUT_NORM or added.RPN_INPUT_GRADIENT != 1:
        rcnn.proposal_generator = SeparateNormRPN(
            rcnn.proposal_generator,
            get_norm(added.RPN_INPUT_NORM, 4 * resnet.RES2_OUT_CHANNELS),
            gradient_factor=added.RPN_INPUT_GRADIENT,
        )
    return rcnn


def _add_norm(convolution: Any, norm: str) -> None:
    """Add a norm layer between a detectron2 convolution and its activation.

    The norm layer's bias replaces the convolution's.
    """
    from detectron2.layers import get_norm

    convolution.norm = get_norm(norm, convolution.out_channels)
    convolution.bias = None


def _basic_res5(num_blocks: int, norm: str) -> nn.Sequential:
    """Return a layer4 of basic blocks.

    It maps (r, 256, 14, 14) to (r, 512, 7, 7). detectron2's box head supports only bottlenecks.
    """
    from detectron2.modeling.backbone.resnet import BasicBlock, ResNet

    blocks = ResNet.make_stage(
        BasicBlock,
        num_blocks,
        stride_per_block=[2] + [1] * (num_blocks - 1),
        in_channels=256,
        out_channels=512,
        norm=norm,
    )
    return nn.Sequential(*blocks)


class SeparateNormRPN(nn.Module):
    """CO2's RPN, with an input norm layer and a scaled input gradient."""

    def __init__(self, rpn: Any, norm: nn.Module | None, *, gradient_factor: float) -> None:
        super().__init__()
        self.norm = norm if norm is not None else nn.Identity()
        self.rpn = rpn
        self.gradient_factor = gradient_factor

    def forward(self, images: Any, features: Mapping[str, Tensor], targets: Any = None) -> Any:
        """Return proposals and losses for maps (n, C, H, W) by name."""
        # scaled before the norm layer, so that its parameters have the full gradient
        maps = {
            name: self.norm(scale_gradient(features[name], self.gradient_factor))
            for name in self.rpn.in_features
        }
        return self.rpn(images, maps, targets)


def _as_input(sample: Sample) -> dict[str, Any]:
    from detectron2.structures import Boxes, Instances, Keypoints, PolygonMasks

    _, height, width = sample.image.shape
    objects = Instances((height, width))
    objects.gt_boxes = Boxes(sample.boxes)
    objects.gt_classes = sample.classes
    if sample.polygons is not None:
        objects.gt_masks = PolygonMasks([list(outlines) for outlines in sample.polygons])
    if sample.keypoints is not None:
        objects.gt_keypoints = Keypoints(sample.keypoints)
    return {"image": sample.image, "instances": objects}


class Detectron2Detector(Detector):
    """A detectron2 R-CNN with the interface of `Detector`."""

    rpn_prefix = "rcnn.proposal_generator."

    def __init__(self, rcnn: Any, recipe: DetectorRecipe, config: Any) -> None:
        super().__init__()
        self.rcnn = rcnn
        self.recipe = recipe
        self.config = config

    def forward(self, samples: Sequence[Sample]) -> dict[str, Tensor]:
        """Return the losses by name, in training mode."""
        from detectron2.utils.events import EventStorage

        # detectron2's heads write statistics into a storage, which we ignore
        with silence_known_warnings(), EventStorage():
            losses: dict[str, Tensor] = self.rcnn([_as_input(sample) for sample in samples])
        return losses

    @torch.inference_mode()
    def find(self, images: Sequence[Tensor]) -> list[ResizedDetections]:
        """Return the detections on uint8 images (3, H, W), in eval mode."""
        with silence_known_warnings():
            inputs = [{"image": image} for image in images]
            results = self.rcnn.inference(inputs, do_postprocess=False)
        return [
            ResizedDetections(
                boxes=instances.pred_boxes.tensor,
                scores=instances.scores,
                classes=instances.pred_classes,
                masks=instances.pred_masks[:, 0] if instances.has("pred_masks") else None,
                keypoints=instances.pred_keypoints if instances.has("pred_keypoints") else None,
            )
            for instances in results
        ]

    @torch.inference_mode()
    def feature_maps(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the maps after layer1 to layer4 by name, in eval mode.

        Maps are (n, C, H, W). detectron2 normalizes the n uint8 images (3, H, W), which have equal
        sizes.
        """
        rcnn = self.rcnn
        x = rcnn.preprocess_image([{"image": image} for image in images]).tensor
        pyramid = self.recipe.neck == "fpn"
        resnet = rcnn.backbone.bottom_up if pyramid else rcnn.backbone
        x = resnet.stem(x)
        maps = {}
        for layer, name in STAGES.items():
            stage = getattr(resnet if pyramid or name != "res5" else rcnn.roi_heads, name)
            for block_name, block in stage.named_children():
                x = x if block_name == "norm" else block(x)
            maps[layer] = x
        return maps

    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> None:
        """Load a backbone with torchvision's names."""
        tensors = to_detectron2(state_dict, self.recipe.neck)
        self.rcnn.load_state_dict({**self.rcnn.state_dict(), **tensors})


def write_files(detector: Detectron2Detector, dataset: str, folder: Path) -> None:
    """Write config.yaml and model.pth, to open a trained detector with detectron2.

    dataset: our key; the file contains detectron2's names for the splits. A dataset with another
    number of classes, such as a user's dataset, has no such names.
    """
    c = detector.config.clone()
    c.MODEL.WEIGHTS = str((folder / WEIGHTS_FILE).absolute())
    c.MODEL.DEVICE = next(detector.parameters()).device.type
    num_classes, train, test = DETECTRON2_DATASETS.get(dataset, (0, (), ()))
    if num_classes == c.MODEL.ROI_HEADS.NUM_CLASSES:
        c.DATASETS.TRAIN, c.DATASETS.TEST = train, test
    content = io.BytesIO()
    torch.save({"model": detector.rcnn.state_dict()}, content)
    write_whole(folder / WEIGHTS_FILE, content.getbuffer(), "--runs")
    write_text(folder / CONFIG_FILE, c.dump(), "--runs")
