"""Evaluation transforms, normalization, and settings of random views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from transfer.encoders.encoder import InputFormat

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from torch import Tensor

QUARTER_TURNS = 4


@dataclass(frozen=True, kw_only=True)
class EvalTransform:
    """Evaluation transform: resize and crop the center, or resize to a square."""

    resize_px: int
    crop_px: int
    squash: bool = False
    """Resize to a square of resize_px, then to a square of crop_px."""
    border_px: int = 0
    """Width of the border to remove from all sides before resizing."""
    turns: int = 0
    """Number of counterclockwise 90 degree rotations of the crop."""

    @classmethod
    def center(cls, crop_px: int, margin_px: int) -> Self:
        """Return a center crop.

        The short side exceeds the crop by margin_px * crop_px / 224.
        """
        return cls(resize_px=round(crop_px * (1 + margin_px / 224)), crop_px=crop_px)

    def pixels(self, image: Image.Image) -> Image.Image:
        """Return the network's input image before normalization."""
        from PIL import Image
        from torchvision.transforms import v2

        if self.border_px:
            width, height, border = *image.size, self.border_px
            image = image.crop((border, border, width - border, height - border))
        if self.squash:
            for size_px in (self.resize_px, self.crop_px):
                image = image.resize((size_px, size_px), Image.Resampling.BILINEAR)
        else:
            image = v2.functional.resize(image, [self.resize_px])
            image = v2.functional.center_crop(image, [self.crop_px, self.crop_px])
        return image.rotate(90 * self.turns)  # without interpolation, since it is square


class Normalization:
    """Normalization on the network's device; equals that of torchvision."""

    def __init__(self, input_format: InputFormat, target_device: torch.device) -> None:
        """Copy the constants to the device once."""
        import torch

        self.device = target_device
        constants = torch.tensor([input_format.mean, input_format.std], dtype=torch.float32)
        self.mean, self.std = constants[..., None, None].to(target_device)

    def __call__(self, raw: Tensor) -> Tensor:
        """Return normalized float32 pixels (n, 3, H, W), channels last.

        raw: uint8 pixels on the CPU.
        """
        import torch

        pixels = raw.contiguous(memory_format=torch.channels_last).to(
            self.device, non_blocking=True
        )
        # the same operations as torchvision's v2.ToDtype and v2.Normalize
        return pixels.to(torch.float32).mul_(1 / 255).sub_(self.mean).div_(self.std)


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Number and augmentation of views; the defaults are MoCo v2's (arXiv:2003.04297)."""

    num_views: int = 32
    """V, number of views of each image."""
    size_px: int = 224
    crop_area: tuple[float, float] = (0.2, 1.0)
    """Range of the crop's fraction of the image area."""
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    """Strength of brightness, contrast, saturation and hue, as in torchvision's ColorJitter.

    Factors are from 1 - x to 1 + x; the hue shift is a fraction of the color circle."""
    jitter_probability: float = 0.8
    gray_probability: float = 0.2
    blur_probability: float = 0.5
    blur_sigma_px: tuple[float, float] = (0.1, 2.0)
    """Range of the standard deviation of Gaussian blur."""
    flip_probability: float = 0.5
