"""All settings of detectors, for both engines.

COCO_FPN follows JCL, section 4.3 (Cai et al., NeurIPS 2020, arXiv:2009.14776), and detectron2's
R50-FPN 1x for everything that the paper does not state. VOC_C4 is MoCo's R50-C4 on VOC 2007+2012
(He et al., CVPR 2020, arXiv:1911.05722) with the two norm layers of CO2 (Wei et al., ICLR 2021,
arXiv:2010.02217). TASKS in tasks/detection.py assigns the recipes to tasks: the recipes of
coco_det, coco_insseg and coco_keypoint are derived from COCO_FPN.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from transfer.finetuning.schedule import FineTuningRecipe, Precision

Finds = Literal["boxes", "masks", "keypoints"]
Part = Literal["fpn", "box_head", "mask_head", "keypoint_head", "rpn_head"]
ExtraNorms = Literal["none", "moco", "co2"]
RPNGradient = Literal["scale_input", "lr_mult", "loss_weight", "none"]

PYRAMID_STRIDES_PX = (4, 8, 16, 32, 64)
"""Strides of the pyramid's maps; only the RPN uses the last one."""
C4_STRIDES_PX = (16,)
"""Stride of the layer3 map."""


@dataclass(frozen=True, kw_only=True)
class DetectorRecipe(FineTuningRecipe):
    """Settings of a detector.

    Sizes are in px of the resized image, counts are per image. `TrainingSchedule` and
    `FineTuningRecipe` describe the fields without a docstring.
    """

    # the network
    neck: Literal["fpn", "c4"]
    """fpn: feature pyramid; c4: layer3 map, with layer4 as box head."""
    finds: Finds = "boxes"
    """Output of the detector: boxes, or also masks or keypoints."""
    normed: tuple[Part, ...] = ("fpn",)
    """New modules with a norm layer after each convolution.

    The backbone always has norm layers."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"] = "SyncBN"
    extra_norms: ExtraNorms = "none"
    """Extra norm layers: after layer4 (moco), also before the RPN (co2)."""
    rpn_gradient: RPNGradient = "none"
    """Interpretation of CO2's "gradients divided by 10".

    The factor scales the gradient from the RPN into the shared map (scale_input), the RPN's
    learning rate (lr_mult) or the RPN's loss (loss_weight)."""
    rpn_gradient_factor: float = 0.1
    """Factor of `rpn_gradient`."""
    fpn_channels: int = 256
    """Channels of each pyramid level."""
    box_head_convs: int = 0
    """Number of 3x3 convolutions of the box head (fpn)."""
    box_head_fcs: int = 2
    """Number of linear layers after the convolutions."""
    box_head_conv_channels: int = 256
    """Channels of each of the box head's convolutions."""
    box_head_fc_channels: int = 1024
    """Outputs of each of the box head's linear layers."""
    mask_head_channels: int = 256
    """Channels of the mask head's four convolutions and of its upsampling."""
    keypoint_head_channels: int = 512
    """Channels of the keypoint head's eight convolutions."""
    # anchors and proposals
    anchor_sizes_px: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Square roots of anchor areas, one per pyramid level; c4: all."""
    anchor_ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Ratios of height to width."""
    rpn_iou: tuple[float, float] = (0.3, 0.7)
    """IoU thresholds of anchors: below the first background, from the second positive.

    Anchors between the thresholds are ignored."""
    rpn_samples: int = 256
    """Anchors per image in the RPN's losses, also their divisor."""
    rpn_positive_share: float = 0.5
    """Maximum fraction of positive anchors; the others are background."""
    rpn_candidates: tuple[int, int] = (2000, 1000)
    """Best anchors per level before NMS, in training and in test."""
    rpn_proposals: tuple[int, int] = (1000, 1000)
    """Best proposals of all levels after NMS, in training and in test."""
    rpn_nms_iou: float = 0.7
    """IoU threshold of the RPN's NMS, which is per level."""
    # heads
    roi_samples: int = 512
    """Maximum number of regions per image that the heads are trained on."""
    roi_positive_share: float = 0.25
    """Maximum fraction of positive regions; the others are background."""
    roi_iou: float = 0.5
    """IoU threshold of positive regions; others are background."""
    box_pool: int = 7
    """Size of the box head's RoIAlign output; masks and keypoints use 14."""
    box_weights: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)
    """Weights of the box head's deltas dx, dy, dw, dh."""
    box_smooth_l1_beta: float = 0.0
    """Beta of the box head's smooth L1 loss; 0 is L1."""
    # images
    train_short_px: tuple[int, ...] = (640, 672, 704, 736, 768, 800)
    """Lengths of the shorter side in training, drawn per image."""
    test_short_px: int = 800
    """Length of the shorter side in the test."""
    long_px: int = 1333
    """Maximum length of the longer side."""
    flip_share: float = 0.5
    """Probability of a horizontal flip in training."""
    pixel_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """The backbone's pixel mean, for RGB from 0 to 1."""
    pixel_std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """The backbone's pixel standard deviation, for RGB from 0 to 1."""
    group_by_aspect: bool = True
    """Whether a batch contains either only wide images or only others."""
    # training
    iterations: int = 90_000
    milestones: tuple[int, ...] = (60_000, 80_000)
    """Iterations after which the learning rate is divided by 10."""
    learning_rate: float = 0.02
    warmup_iterations: int = 1_000
    warmup_factor: float = 0.001
    batch_size: int = 16
    accumulated: int = 1
    sgd_momentum: float = 0.9
    weight_decay: float = 1e-4
    """Weight decay of all parameters except norm layers."""
    precision: Precision = "float32"
    precise_norm_batches: int = 200
    # test
    min_score: float = 0.05
    """Minimum score of a detection."""
    nms_iou: float = 0.5
    """IoU threshold of the final NMS, which is per class."""
    detections: int = 100
    """Maximum number of detections per image."""

    def at_size(self, test_short_px: int) -> Self:
        """Return the recipe for another image size; lengths are scaled."""
        factor = test_short_px / self.test_short_px
        return replace(
            self,
            train_short_px=tuple(round(px * factor) for px in self.train_short_px),
            test_short_px=test_short_px,
            long_px=round(self.long_px * factor),
            anchor_sizes_px=tuple(max(1, round(px * factor)) for px in self.anchor_sizes_px),
        )

    def tiny(self) -> Self:
        """Return a smoke test: narrow detector, small images, few steps."""
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


COCO_FPN = DetectorRecipe(neck="fpn")
"""Box detector with MoCo's norm layers: trainable in backbone and pyramid."""
COCO_FPN_MASKS = replace(COCO_FPN, finds="masks")
COCO_FPN_KEYPOINTS = replace(
    COCO_FPN, finds="keypoints", box_smooth_l1_beta=0.5, rpn_proposals=(1500, 1000)
)

COCO_4CONV1FC = replace(COCO_FPN, box_head_convs=4, box_head_fcs=1, normed=("fpn", "box_head"))
"""Detector with another common box head: four convolutions, one linear layer.

As in detectron2's recipe with synchronized batch norm, the convolutions of the pyramid and of the
box and mask heads have norm layers, but the RPN has none.
"""
COCO_4CONV1FC_MASKS = replace(COCO_4CONV1FC, finds="masks", normed=("fpn", "box_head", "mask_head"))

VOC_C4 = DetectorRecipe(
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
