"""All numbers of the segmentation network, its training and its test.

They follow CO2, sections 3.4 and A.2 (Wei et al., ICLR 2021, arXiv:2010.02217) and, where the paper
is silent, MoCo's FCN on VOC (He et al., CVPR 2020, arXiv:1911.05722, appendix).
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from transfer.finetuning.schedule import FineTuningRecipe, Precision


@dataclass(frozen=True, kw_only=True)
class SegmentationRecipe(FineTuningRecipe):
    """Settings of a segmentation network. Sizes are in px.

    Fields without a word are described in `TrainingSchedule` and `FineTuningRecipe`.
    """

    # the network
    layer4_dilation: int = 2
    """Dilation of the 3x3 convolutions of all blocks of layer4. Their stride is 1, so that the maps
    have 1/16 of the image's size. In a basic block (ResNet-18, 34) only the first convolution is
    dilated, as in mmsegmentation."""
    head_convs: int = 2
    """Number of 3x3 convolutions, each with norm and ReLU, before the classifier."""
    head_channels: int = 256
    """Channels of each of these convolutions."""
    head_dilation: int = 6
    """Dilation of each of these convolutions."""
    align_corners: bool = True
    """Option of the upsampling. True puts the outer of the 33 positions of a 513 px crop on its
    corners, as in the public ports of MoCo's network to mmsegmentation. The papers do not name it,
    and mmsegmentation's default is False."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"] = "SyncBN"
    # images
    scales: tuple[float, float] = (0.5, 2.0)
    """Range of the scale of the original image, drawn uniformly; the test uses 1."""
    flip_share: float = 0.5
    """Probability that a training image is mirrored left to right."""
    crop_px: int = 513
    """Side of a crop. Smaller images are padded with the mean color; these pixels are ignored."""
    pixel_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """The backbone's pixel mean, for RGB from 0 to 1."""
    pixel_std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """The backbone's pixel standard deviation, for RGB from 0 to 1."""
    # training
    iterations: int = 33_069
    """Optimizer steps in total: 50 epochs of 10,582 images."""
    milestones: tuple[int, ...] = (23_148, 29_762)
    """Iterations after which the learning rate is divided by 10: at 70 and 90 %."""
    learning_rate: float = 0.003
    warmup_iterations: int = 0
    warmup_factor: float = 1.0
    batch_size: int = 16
    accumulated: int = 1
    sgd_momentum: float = 0.9
    weight_decay: float = 1e-4
    """Weight decay of all parameters, including those of norm layers."""
    precision: Precision = "float32"
    precise_norm_batches: int = 0

    def at_size(self, crop_px: int) -> Self:
        """Return the recipe with crops of another side; scales and test do not change."""
        return replace(self, crop_px=crop_px)

    def tiny(self) -> Self:
        """Return a smoke test: a few steps of a narrow head on small crops."""
        return replace(
            self,
            head_channels=32,
            crop_px=65,
            iterations=12,
            milestones=(8, 11),
            batch_size=4,
        )


VOC_FCN = SegmentationRecipe()
VOC_FCN_MOCO = replace(VOC_FCN, iterations=30_000, milestones=(21_000, 27_000))
"""MoCo's own training, of 30k iterations."""
