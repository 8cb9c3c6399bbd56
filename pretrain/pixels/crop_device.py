"""Boxes of images on a device, resized to squares in floating point.

Bilinear with antialiasing, like crop_cpu.py, but without its rounding between the two passes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import interpolate


def crop(pixels: Tensor, boxes: Tensor, size_px: int) -> Tensor:
    """Cut boxes (n, 4) out of images (n, 3, H, W) and resize them to (n, 3, S, S) in 0..1.

    Bilinear with antialiasing. Pixels outside a box have no effect, so images may be padded. Boxes
    are float32.
    """
    top, left, height, width = boxes.unbind(dim=1)
    rows = resize_matrix(top, height, pixels.shape[2], size_px)
    columns = resize_matrix(left, width, pixels.shape[3], size_px)
    scaled = pixels.float() / 255
    return rows[:, None] @ scaled @ columns[:, None].mT


def resize_matrix(start: Tensor, length: Tensor, in_size: int, out_size: int) -> Tensor:
    """Return weights (n, out, in) that resize [start, start + length) (n,) along one axis."""
    places = torch.arange(out_size, device=start.device) + 0.5
    scale = (length / out_size)[:, None]
    centers = start[:, None] + places * scale
    taps = torch.arange(in_size, device=start.device) + 0.5
    distance = (taps - centers[..., None]).abs() / scale.clamp(min=1)[..., None]
    inside = (taps > start[:, None]) & (taps < (start + length)[:, None])
    weights = (1 - distance).clamp(min=0) * inside[:, None]
    return weights / weights.sum(dim=2, keepdim=True)


def crop_one(pixels: Tensor, box: Sequence[int], size_px: int) -> Tensor:
    """Cut a box, top, left, height, width, out of (H, W, 3) and resize it to (3, S, S).

    For images of many sizes, which a batch would have to pad. The result has whole levels of
    0..255, each within 1 of that of crop_cpu.py.
    """
    top, left, height, width = box
    cut = pixels[top : top + height, left : left + width].permute(2, 0, 1)[None].float()
    resized = interpolate(cut, size=(size_px, size_px), mode="bilinear", antialias=True)
    return resized[0].round_()
