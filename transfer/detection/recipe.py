"""Every number of a detector, its training and its test, whatever engine carries them out.

Values of COCO_FPN: JCL sheet (section 4.3 of Cai et al., NeurIPS 2020, arXiv:2009.14776) and, where
the paper is silent, detectron2's R50-FPN 1x. Of VOC_C4: MoCo's R50-C4 on VOC 2007+2012 (He et al.,
CVPR 2020, arXiv:1911.05722), with the two norm layers of CO2 (Wei et al., ICLR 2021,
arXiv:2010.02217).
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from transfer.finetuning.schedule import Precision

Finds = Literal["boxes", "masks", "keypoints"]
Part = Literal["fpn", "box_head", "mask_head", "keypoint_head", "rpn_head"]
ExtraNorms = Literal["none", "moco", "co2"]
RPNGradient = Literal["scale_input", "lr_mult", "loss_weight", "none"]

PYRAMID_STRIDES_PX = (4, 8, 16, 32, 64)
"""Of the maps of a pyramid; the last is the RPN's alone."""
C4_STRIDES_PX = (16,)
"""Of the layer3 map."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Sizes in px of the resized image, areas of boxes in px, counts per image."""

    # the network
    neck: Literal["fpn", "c4"]
    """Feature pyramid, or the layer3 map with layer4 as the head of the boxes."""
    finds: Finds = "boxes"
    """What a detection holds besides its class."""
    normed: tuple[Part, ...] = ("fpn",)
    """New parts with a norm layer behind each convolution; the backbone always keeps its own."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"] = "SyncBN"
    """How norm layers share statistics on several GPUs; on one, and on a CPU, plain BN."""
    extra_norms: ExtraNorms = "none"
    """c4: moco puts a norm behind layer4; co2 one more in front of the RPN."""
    rpn_gradient: RPNGradient = "none"
    """Reading of CO2's "gradients divided by 10": of what the RPN sends into the shared map, of the
    RPN's learning rate, or of the RPN's loss."""
    rpn_gradient_factor: float = 0.1
    """What `rpn_gradient` multiplies by; not used where that is none."""
    fpn_channels: int = 256
    """Of every map of the pyramid."""
    box_head_convs: int = 0
    """3x3 convolutions of a pyramid's box head."""
    box_head_fcs: int = 2
    """Linear layers behind them."""
    box_head_conv_channels: int = 256
    """Of each of its convolutions."""
    box_head_fc_channels: int = 1024
    """Of each of its linear layers."""
    mask_head_channels: int = 256
    """Of each of its four convolutions and of the upsampling."""
    keypoint_head_channels: int = 512
    """Of each of its eight convolutions."""
    # anchors and proposals
    anchor_sizes_px: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Square roots of areas: one per level of a pyramid, all on the one map of c4."""
    anchor_ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Height over width."""
    rpn_iou: tuple[float, float] = (0.3, 0.7)
    """Below: background; from: object; between: not used."""
    rpn_samples: int = 256
    """Anchors of an image that the RPN's losses look at, and are divided by."""
    rpn_positive_share: float = 0.5
    """Of these, at most; background fills the rest."""
    rpn_candidates: tuple[int, int] = (2000, 1000)
    """Best-scored anchors per level before suppression, in training and test."""
    rpn_proposals: tuple[int, int] = (1000, 1000)
    """After suppression, of all levels, in training and test."""
    rpn_nms_iou: float = 0.7
    """A proposal that overlaps a better one of its level by more is suppressed."""
    # heads
    roi_samples: int = 512
    """Proposals and objects of an image that the heads learn from, at most."""
    roi_positive_share: float = 0.25
    """Of these, at most, on objects; background fills the rest."""
    roi_iou: float = 0.5
    """From: on an object; below: background."""
    box_pool: int = 7
    """Side of the map that RoIAlign gives the box head; 14 for masks and keypoints."""
    box_weights: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)
    """Of the box head's deltas dx, dy, dw, dh."""
    box_smooth_l1_beta: float = 0.0
    """0 is L1."""
    # images
    train_short_px: tuple[int, ...] = (640, 672, 704, 736, 768, 800)
    """One is drawn per image."""
    test_short_px: int = 800
    long_px: int = 1333
    """The longer side is no longer than this."""
    flip_share: float = 0.5
    """Of the training images, mirrored left to right."""
    pixel_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Of RGB from 0 to 1: the backbone's."""
    pixel_std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Of RGB from 0 to 1: the backbone's."""
    group_by_aspect: bool = True
    """Batches hold only wide, or only tall and square images."""
    # training
    iterations: int = 90_000
    """Optimizer steps."""
    milestones: tuple[int, ...] = (60_000, 80_000)
    """Iterations after which the learning rate is a tenth."""
    learning_rate: float = 0.02
    """After the warm-up, for `batch_size` images."""
    warmup_iterations: int = 1_000
    """Over which the learning rate rises linearly."""
    warmup_factor: float = 0.001
    """Share of the learning rate that it rises from."""
    batch_size: int = 16
    """Images per optimizer step, all GPUs and accumulated passes."""
    accumulated: int = 1
    """Passes whose gradients make one step; each has its own norm statistics."""
    sgd_momentum: float = 0.9
    """Of the optimizer."""
    weight_decay: float = 1e-4
    """Not of norm layers."""
    precision: Precision = "float32"
    """Of the training's convolutions and products (autocast)."""
    precise_norm_batches: int = 200
    """Training batches over which the norms' statistics are averaged before the test."""
    # test
    min_score: float = 0.05
    """A detection's probability is above it."""
    nms_iou: float = 0.5
    """A detection that overlaps a better one of its class by more is suppressed."""
    detections: int = 100
    """At most, per image."""

    @property
    def decay(self) -> float:
        """A tenth: no setting, as detectron2 and mmsegmentation leave it, too."""
        return 0.1

    def at_size(self, test_short_px: int) -> Self:
        """For images of another size: what is measured in px, in proportion."""
        factor = test_short_px / self.test_short_px
        return replace(
            self,
            train_short_px=tuple(round(px * factor) for px in self.train_short_px),
            test_short_px=test_short_px,
            long_px=round(self.long_px * factor),
            anchor_sizes_px=tuple(max(1, round(px * factor)) for px in self.anchor_sizes_px),
        )

    def tiny(self) -> Self:
        """A few steps of a narrow detector on small images: shows that everything runs."""
        pyramid = self.neck == "fpn"
        return replace(
            self,
            fpn_channels=32,
            box_head_conv_channels=32,
            box_head_fc_channels=64,
            mask_head_channels=32,
            keypoint_head_channels=32,
            anchor_sizes_px=(8, 16, 32, 64, 128) if pyramid else (16, 32, 64),
            rpn_samples=64,
            rpn_candidates=(200, 200),
            rpn_proposals=(100, 50) if pyramid else (50, 10),
            roi_samples=32 if pyramid else 8,
            box_pool=7,
            train_short_px=(64, 80),
            test_short_px=80,
            long_px=128,
            iterations=12,
            milestones=(8, 11),
            warmup_iterations=3,
            batch_size=4,
            learning_rate=self.learning_rate * 4 / self.batch_size,
            precise_norm_batches=4,
        )


COCO_FPN = Recipe(neck="fpn")
"""Boxes; moco-FPN: norm layers are trained in the backbone and added on the pyramid."""
COCO_FPN_MASKS = replace(COCO_FPN, finds="masks")
COCO_FPN_KEYPOINTS = replace(
    COCO_FPN, finds="keypoints", box_smooth_l1_beta=0.5, rpn_proposals=(1500, 1000)
)

COCO_4CONV1FC = replace(COCO_FPN, box_head_convs=4, box_head_fcs=1, normed=("fpn", "box_head"))
"""The head of other suites: four convolutions and one layer.

Norms stand on the pyramid and behind the convolutions of the box and mask heads, none in the RPN's
head, as in detectron2's recipe with synchronized norms.
"""
COCO_4CONV1FC_MASKS = replace(COCO_4CONV1FC, finds="masks", normed=("fpn", "box_head", "mask_head"))

VOC_C4 = Recipe(
    neck="c4",
    normed=(),
    synchronized_norm="naiveSyncBN",
    extra_norms="co2",
    rpn_gradient="scale_input",
    rpn_candidates=(12_000, 6_000),
    rpn_proposals=(2_000, 1_000),
    box_pool=14,
    train_short_px=tuple(range(480, 801, 32)),
    iterations=24_000,
    milestones=(18_000, 22_000),
    warmup_iterations=100,
)
VOC_C4_MOCO = replace(VOC_C4, extra_norms="moco", rpn_gradient="none")
VOC_C4_NONE = replace(VOC_C4, extra_norms="none", rpn_gradient="none")
