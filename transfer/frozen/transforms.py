"""The way from a decoded image to the normalized input of a network; settings of random views."""

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
    """Evaluation transform: resize the short side and crop the center, or squash; normalize."""

    resize_px: int
    crop_px: int
    squash: bool = False
    """Resize to resize_px x resize_px regardless of the aspect, then to crop_px x crop_px."""
    border_px: int = 0
    """Border that is cut off on all sides before anything else."""
    turns: int = 0
    """Counterclockwise quarter turns of the crop at the end."""

    @classmethod
    def center(cls, crop_px: int, margin_px: int) -> Self:
        """Return a center crop; the short side exceeds it by margin_px * crop_px / 224."""
        return cls(resize_px=round(crop_px * (1 + margin_px / 224)), crop_px=crop_px)

    def pixels(self, image: Image.Image) -> Image.Image:
        """Return the network's input image before normalization."""
        from PIL import Image
        from torchvision.transforms import v2

        if self.border_px:
            width, height, edge = *image.size, self.border_px
            image = image.crop((edge, edge, width - edge, height - edge))
        if self.squash:
            whole = image.resize((self.resize_px, self.resize_px), Image.Resampling.BILINEAR)
            squashed = whole.resize((self.crop_px, self.crop_px), Image.Resampling.BILINEAR)
            return rotate_quarters(squashed, self.turns)
        small = v2.functional.resize(image, [self.resize_px])
        center: Image.Image = v2.functional.center_crop(small, [self.crop_px, self.crop_px])
        return rotate_quarters(center, self.turns)


def rotate_quarters(image: Image.Image, quarters: int) -> Image.Image:
    """Turn an image counterclockwise by 0 to 3 quarters; pixels are moved, not interpolated."""
    from PIL import Image

    kinds = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)
    return image.transpose(kinds[quarters - 1]) if quarters else image


class Normalization:
    """Normalization of raw pixels on the device of the network; the values of normalize_pixels."""

    def __init__(self, form: InputFormat, where: torch.device) -> None:
        """Keep the constants on the device, since an upload for each batch would wait for it."""
        import torch

        self.where = where
        constants = torch.tensor([form.mean, form.std], dtype=torch.float32)
        self.mean, self.std = constants[..., None, None].to(where)

    def __call__(self, raw: Tensor) -> Tensor:
        """Return pixels (n, 3, H, W) float32, channels last, of uint8 pixels on the host."""
        import torch

        there = raw.contiguous(memory_format=torch.channels_last).to(self.where, non_blocking=True)
        # the operations of torchvision's v2.ToDtype and v2.Normalize, in their order
        return there.to(torch.float32).mul_(1 / 255).sub_(self.mean).div_(self.std)


def normalize_pixels(raw: Tensor, form: InputFormat) -> Tensor:
    """Convert pixels (..., 3, H, W) uint8 to normalized float32, as the backbone expects them."""
    import torch
    from torchvision.transforms import v2

    scaled = v2.functional.to_dtype(raw, torch.float32, scale=True)
    pixels: Tensor = v2.functional.normalize(scaled, list(form.mean), list(form.std))
    return pixels


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Number and distribution of the views; the defaults are MoCo v2's: arXiv:2003.04297."""

    num_views: int = 32
    """V."""
    size_px: int = 224
    crop_area: tuple[float, float] = (0.2, 1.0)
    """Range of the share of the image's area that a crop has."""
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    """x of factors from 1 - x to 1 + x of brightness, contrast and saturation; largest shift of the
    hue in turns."""
    jitter_probability: float = 0.8
    gray_probability: float = 0.2
    blur_probability: float = 0.5
    blur_sigma_px: tuple[float, float] = (0.1, 2.0)
    """Range of the Gaussian's standard deviation."""
    flip_probability: float = 0.5
