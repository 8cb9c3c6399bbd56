"""All settings of segmentation networks, their training and their test.

The FCN follows CO2, sections 3.4 and A.2 (Wei et al., ICLR 2021, arXiv:2010.02217). Details that
the paper omits follow MoCo's FCN on VOC (He et al., CVPR 2020, arXiv:1911.05722, appendix).
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from transfer.finetuning.schedule import FineTuningRecipe, Precision


@dataclass(frozen=True, kw_only=True)
class SegmentationRecipe(FineTuningRecipe):
    """Settings of a segmentation network. Sizes are in px.

    Fields without a docstring are described in `TrainingSchedule` and `FineTuningRecipe`.
    """

    # the network
    layer4_dilation: int = 2
    """Dilation of the 3x3 convolutions in layer4.

    Their stride is 1, so that the output stride is 16. In a basic block (ResNet-18, 34), only the
    first convolution is dilated, as in mmsegmentation.
    """
    head_convs: int = 2
    """Number of 3x3 convolutions with norm and ReLU before the classifier."""
    head_channels: int = 256
    """Channels of each of these convolutions."""
    head_dilation: int = 6
    """Dilation of each of these convolutions."""
    align_corners: bool = True
    """Whether upsampling aligns corners.

    If so, the outer ones of the 33 map positions are at the corners of a 513 px crop. True as in
    the public ports of MoCo's network to mmsegmentation. The papers do not mention it;
    mmsegmentation's default is False.
    """
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"] = "SyncBN"
    # images
    scales: tuple[float, float] = (0.5, 2.0)
    """Range of the uniformly drawn image scale; the test uses 1."""
    flip_share: float = 0.5
    """Probability of a horizontal flip in training."""
    crop_px: int = 513
    """Crop size. Padding of smaller images (mean color) is ignored."""
    pixel_mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """The backbone's pixel mean, for RGB from 0 to 1."""
    pixel_std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """The backbone's pixel standard deviation, for RGB from 0 to 1."""
    # training
    iterations: int = 33_069
    """Optimizer steps in total: 50 epochs of 10,582 images."""
    milestones: tuple[int, ...] = (23_148, 29_762)
    """Iterations after which the learning rate is divided by 10."""
    learning_rate: float = 0.003
    warmup_iterations: int = 0
    warmup_factor: float = 1.0
    batch_size: int = 16
    accumulated: int = 1
    sgd_momentum: float = 0.9
    weight_decay: float = 1e-4
    """Weight decay of all parameters, including norm layers."""
    precision: Precision = "float32"
    precise_norm_batches: int = 0

    def at_size(self, crop_px: int) -> Self:
        """Return the recipe with another crop size.

        Scales and test do not change.
        """
        return replace(self, crop_px=crop_px)

    def tiny(self) -> Self:
        """Return a smoke test: a few steps with small crops."""
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
"""MoCo's training, with 30k iterations."""


@dataclass(frozen=True, kw_only=True)
class LinearRecipe(FineTuningRecipe):
    """Settings of a linear classifier on frozen maps. Sizes are in px.

    The values follow DINOv2's configuration for VOC 2012 (facebookresearch/dinov2, mmsegmentation
    0.27). Fields without a docstring are described in `TrainingSchedule` and `FineTuningRecipe`.
    """

    # the head
    features: str = "last block, final norm, without prefix tokens"
    positions: str = "bicubic, antialias, by size"
    """How position embeddings are resampled to the crop's size."""
    dropout: float = 0.0
    """Dropout probability of the maps' channels, before the batch norm."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"] = "SyncBN"
    loss_mean: str = "all pixels, ignored ones too"
    # images
    crop_px: int = 512
    """Size of crops and windows.

    If it is not divisible by the patch size (such as 14 px), images are zero-padded on all sides to
    the next divisible size, and the logits are resized to the crop. This is our interpretation.
    """
    grid: int = 0
    """Map size, which determines the crop size; 0: use `crop_px`."""
    scales: tuple[float, float] = (0.5, 2.0)
    """Range of the training images' short side, relative to the crop."""
    longest: float = 4.0
    """Maximum of the long side, relative to the short; 0: none."""
    most_of_a_class: float = 0.75
    """Maximum fraction of one class in a crop; others are redrawn."""
    redraws: int = 10
    flip_share: float = 0.5
    distortion: str = "brightness 32, contrast and saturation 0.5 to 1.5, hue 18 of 180"
    window_share: float = 2 / 3
    """Step between the test's windows, relative to the crop."""
    # training
    iterations: int = 40_000
    milestones: tuple[int, ...] = ()
    decay_shape: Literal["steps", "linear", "cosine"] = "linear"
    learning_rate: float = 1e-3
    warmup_iterations: int = 1_500
    warmup_factor: float = 1e-6
    batch_size: int = 16
    """Images per step, all used in the batch norm's statistics."""
    accumulated: int = 1
    adam_betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 1e-4
    """Weight decay (AdamW) of all parameters, including the norm."""
    precision: Precision = "float32"
    precise_norm_batches: int = 0

    @property
    def window_step(self) -> int:
        """Step between the test's windows in px."""
        return round(self.window_share * self.crop_px)

    def at_size(self, crop_px: int) -> Self:
        """Return the recipe with another crop size."""
        return replace(self, crop_px=crop_px, grid=0)

    def tiny(self) -> Self:
        """Return a smoke test: a few steps on small crops."""
        return replace(self, crop_px=64, grid=0, iterations=12, warmup_iterations=2, batch_size=4)


DINOV2 = LinearRecipe()
DINOV3 = replace(
    DINOV2, dropout=0.1, weight_decay=1e-3, decay_shape="cosine", warmup_factor=0.0, longest=0.0
)
"""DINOv3's protocol (arXiv:2508.10104, D.1), with its settings for ADE20K."""
GRID32 = replace(DINOV2, grid=32)
"""Maps of 32 x 32 for every encoder, as in DINOv3's Table 3.

Patches of 14 px need 448 px crops.
"""


@dataclass(frozen=True, kw_only=True)
class InContextRecipe:
    """Settings of the nearest-patch segmentation (Hummingbird, arXiv:2306.01667). Sizes are in px.

    Values that the paper omits follow open-hummingbird-eval 2.0.
    """

    image_px: int = 512
    """Size to which images are resized; 504 for 14 px patches."""
    memory_patches: int = 10_240_000
    """Number of patches in the memory, divided equally among images and epochs."""
    epochs: int = 2
    """Number of augmented crops of each training image."""
    areas: tuple[float, float] = (0.5, 2.0)
    """Range of the crop's area, relative to the image.

    As in torchvision, areas above 1 are drawn again, and after ten draws the whole image is used.
    """
    jitter: float = 0.1
    """Maximum change of brightness, contrast, saturation and hue."""
    jitter_probability: float = 0.5
    """Probability of each of these changes."""
    num_neighbors: int = 30
    temperature: float = 0.02
    """Temperature of the softmax over the neighbors' cosines."""
    positions: str = "bicubic, antialias, by size"
    """How position embeddings are resampled to this size."""
    search: str = "exact, ties by index"
    void: str = "background in the memory, ignored in the test"
    """Treatment of unlabeled pixels."""

    def of_length(self, fraction: float) -> Self:
        """Return the recipe with a fraction of the memory."""
        return replace(self, memory_patches=max(1, round(self.memory_patches * fraction)))

    def tiny(self) -> Self:
        """Return a smoke test: small images, one epoch, a small memory."""
        return replace(self, image_px=64, memory_patches=1024, epochs=1)
