"""Every number of the segmentation network, its training and its test.

CO2, sections 3.4 and A.2 (Wei et al., ICLR 2021, arXiv:2010.02217); where it is silent, MoCo's FCN
on VOC (He et al., CVPR 2020, arXiv:1911.05722, appendix).
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from transfer.finetuning.schedule import Precision


@dataclass(frozen=True, kw_only=True)
class SegmentationRecipe:
    """Sizes in px, counts per image."""

    # the network
    layer4_dilation: int = 2
    """Of the 3x3 convolutions of all its blocks, whose stride is 1: maps are a 16th of the image.
    A basic block (ResNet-18, 34) dilates its first one, as mmsegmentation has it."""
    head_convs: int = 2
    """Each 3x3, with norm and ReLU."""
    head_channels: int = 256
    head_dilation: int = 6
    align_corners: bool = True
    """Of the upsampling: a crop of 513 px has 33 positions, the outer ones on its corners. As in
    the public ports of MoCo's network to mmsegmentation; the papers do not say, and
    mmsegmentation's own default is False."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"] = "SyncBN"
    """How norm layers share statistics on several GPUs; on one, and on a CPU, plain BN."""
    # images
    scales: tuple[float, float] = (0.5, 2.0)
    """Of the original image, drawn evenly; the test is at 1."""
    flip_share: float = 0.5
    crop_px: int = 513
    """Side; what an image lacks is filled with the mean color, and not learned."""
    pixel_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    pixel_std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Of RGB from 0 to 1: the backbone's."""
    # training
    iterations: int = 33_069
    """50 epochs of 10,582 images."""
    milestones: tuple[int, ...] = (23_148, 29_762)
    """Iterations after which the learning rate is a tenth: at 70 and 90 %."""
    learning_rate: float = 0.003
    warmup_iterations: int = 0
    warmup_factor: float = 1.0
    batch_size: int = 16
    """Images per optimizer step, all GPUs and accumulated passes."""
    accumulated: int = 1
    """Passes whose gradients make one step; each has its own norm statistics."""
    sgd_momentum: float = 0.9
    weight_decay: float = 1e-4
    """Of all parameters, norms' too."""
    precision: Precision = "float32"
    precise_norm_batches: int = 0
    """The norms keep their moving statistics."""

    @property
    def decay(self) -> float:
        """A tenth: no setting, as detectron2 and mmsegmentation leave it, too."""
        return 0.1

    def at_size(self, crop_px: int) -> Self:
        """With crops of another side; scales and test stay those of the original image."""
        return replace(self, crop_px=crop_px)

    def tiny(self) -> Self:
        """A few steps of a narrow head on small crops: shows that everything runs."""
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
"""As MoCo trained it: 30k iterations."""
