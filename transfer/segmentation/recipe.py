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


@dataclass(frozen=True, kw_only=True)
class LinearRecipe(FineTuningRecipe):
    """Settings of a linear classifier on frozen maps. Sizes are in px.

    They are those of DINOv2's configuration for VOC 2012 (facebookresearch/dinov2, mmsegmentation
    0.27). Fields without a word are described in `TrainingSchedule` and `FineTuningRecipe`.
    """

    # the head
    features: str = "last block, final norm, without prefix tokens"
    positions: str = "bicubic, antialias, by size"
    """How position embeddings are resampled to the crop's size."""
    dropout: float = 0.0
    """Probability that a channel of the maps is dropped, before the batch norm."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"] = "SyncBN"
    loss_mean: str = "all pixels, ignored ones too"
    # images
    crop_px: int = 512
    """Side of crops and windows. Where patches do not divide it, as 14 px do not, images are padded
    by 0 on all sides to the next size that they divide, whose logits are stretched over the crop:
    our reading."""
    grid: int = 0
    """Places per side of the maps of a crop, from which its size follows; 0: `crop_px` holds."""
    scales: tuple[float, float] = (0.5, 2.0)
    """Range of the short side of training images in units of the crop, drawn uniformly."""
    longest: float = 4.0
    """Limit of the long side, in units of the same; 0: none."""
    most_of_a_class: float = 0.75
    """Share of a crop's pixels from which a class is too much: the crop is drawn again."""
    redraws: int = 10
    flip_share: float = 0.5
    distortion: str = "brightness 32, contrast and saturation 0.5 to 1.5, hue 18 of 180"
    window_share: float = 2 / 3
    """Step of the windows of the test, in units of the crop: 341 of 512 px."""
    # training
    iterations: int = 40_000
    milestones: tuple[int, ...] = ()
    decay_shape: Literal["steps", "linear", "cosine"] = "linear"
    learning_rate: float = 1e-3
    warmup_iterations: int = 1_500
    warmup_factor: float = 1e-6
    batch_size: int = 16
    """Images per step, all in one statistic of the batch norm."""
    accumulated: int = 1
    adam_betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 1e-4
    """Weight decay (AdamW) of all parameters, including those of the norm."""
    precision: Precision = "float32"
    precise_norm_batches: int = 0

    @property
    def window_step(self) -> int:
        """Step between windows of the test."""
        return round(self.window_share * self.crop_px)

    def at_size(self, crop_px: int) -> Self:
        """Return the recipe with crops of another side."""
        return replace(self, crop_px=crop_px, grid=0)

    def tiny(self) -> Self:
        """Return a smoke test: a few steps on small crops."""
        return replace(self, crop_px=64, grid=0, iterations=12, warmup_iterations=2, batch_size=4)


DINOV2 = LinearRecipe()
DINOV3 = replace(
    DINOV2, dropout=0.1, weight_decay=1e-3, decay_shape="cosine", warmup_factor=0.0, longest=0.0
)
"""DINOv3's (arXiv:2508.10104, D.1), whose numbers are those of its configuration for ADE20K."""
GRID32 = replace(DINOV2, grid=32)
"""1,024 places for every encoder, as in DINOv3's Table 3: 448 px for patches of 14 px."""


@dataclass(frozen=True, kw_only=True)
class InContextRecipe:
    """Settings of the nearest patches (Hummingbird, arXiv:2306.01667). Sizes are in px.

    Where the paper is silent, they are those of open-hummingbird-eval 2.0.
    """

    image_px: int = 512
    """Side of the square that images are squashed to; 504 for patches of 14 px."""
    memory_patches: int = 10_240_000
    """Rows of the memory, divided equally among images and epochs."""
    epochs: int = 2
    """Augmented crops of each training image."""
    areas: tuple[float, float] = (0.5, 2.0)
    """Range of the crop's share of the image; shares above 1 are drawn again, or the whole image
    is taken after ten draws, as in torchvision."""
    jitter: float = 0.1
    """Largest change of brightness, contrast, saturation and hue."""
    jitter_probability: float = 0.5
    """Probability of each of these changes."""
    num_neighbors: int = 30
    temperature: float = 0.02
    """Of the softmax over the neighbors' cosines."""
    positions: str = "bicubic, antialias, by size"
    """How position embeddings are resampled to this size."""
    search: str = "exact, ties by index"
    void: str = "background in the memory, ignored in the test"
    """What becomes of pixels without a class."""

    def of_length(self, share: float) -> Self:
        """Return the recipe with a share of the memory."""
        return replace(self, memory_patches=max(1, round(self.memory_patches * share)))

    def tiny(self) -> Self:
        """Return a smoke test: small images, one epoch, a small memory."""
        return replace(self, image_px=64, memory_patches=1024, epochs=1)
