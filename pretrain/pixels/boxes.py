"""Boxes of random resized crops, as in torchvision.

Szegedy et al., CVPR 2015. Ten areas and aspect ratios are tried. If none fits into the image, the
box is the largest central one with an allowed aspect ratio.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Generator

CROP_TRIES = 10
NUM_UNIFORMS = 2 * CROP_TRIES + 2
"""Numbers per box: area and aspect of each attempt, then the position."""
ASPECT = (3 / 4, 4 / 3)
"""Range of width over height, sampled with uniform logarithm."""
AREA = (0.08, 1.0)
"""Range of the crop's fraction of the image area, as in torchvision."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class Box(NamedTuple):
    """A rectangle in an image, in px."""

    top: int
    left: int
    height: int
    width: int


def boxes_of(
    numbers: Floats,
    height: Integers,
    width: Integers,
    area: tuple[float, float],
    aspect: tuple[float, float],
) -> Integers:
    """Return boxes (n, 4) of images with height and width (n,).

    A box is top, left, height, width in px. numbers (n, NUM_UNIFORMS) in [0, 1].
    """
    height, width = height[:, None], width[:, None]
    attempts = numbers[:, : 2 * CROP_TRIES].reshape(len(numbers), CROP_TRIES, 2)
    areas = between(attempts[..., 0], area) * height * width
    low, high = aspect
    aspects = np.exp(between(attempts[..., 1], (np.log(low), np.log(high))))
    widths = np.round(np.sqrt(areas * aspects)).astype(np.int64)
    heights = np.round(np.sqrt(areas / aspects)).astype(np.int64)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fits.argmax(axis=1)[:, None]  # 0 if no attempt fits: see any_fits
    any_fits = fits.any(axis=1, keepdims=True)
    # clipping the image to the allowed aspect gives the central crop
    central_width = np.minimum(width, np.round(height * high).astype(np.int64))
    central_height = np.minimum(height, np.round(width / low).astype(np.int64))
    crop_width = np.where(any_fits, np.take_along_axis(widths, first, 1), central_width)
    crop_height = np.where(any_fits, np.take_along_axis(heights, first, 1), central_height)
    positions = numbers[:, 2 * CROP_TRIES :]
    top = np.floor(positions[:, :1] * (height - crop_height + 1)).astype(np.int64)
    left = np.floor(positions[:, 1:] * (width - crop_width + 1)).astype(np.int64)
    top = np.where(any_fits, top, (height - crop_height) // 2)
    left = np.where(any_fits, left, (width - crop_width) // 2)
    return np.concatenate([top, left, crop_height, crop_width], axis=1)


def between(numbers: Floats, interval: tuple[float, float]) -> Floats:
    """Scale numbers in [0, 1], of any shape, to an interval."""
    low, high = interval
    return low + (high - low) * numbers


def draw_box(generator: Generator, height: int, width: int) -> Box:
    """Draw the same box as torchvision's RandomResizedCrop from the same state.

    With torchvision's ranges AREA and ASPECT.
    """
    import torch

    # the calls of torchvision in its order, so that the numbers are identical
    low, high = torch.log(torch.tensor(ASPECT, dtype=torch.float32)).tolist()
    number = torch.empty(1, dtype=torch.float32)
    for _ in range(CROP_TRIES):
        area = height * width * number.uniform_(*AREA, generator=generator).item()
        aspect = torch.exp(number.uniform_(low, high, generator=generator)).item()
        box_width = round(math.sqrt(area * aspect))
        box_height = round(math.sqrt(area / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            top = int(torch.randint(height - box_height + 1, (1,), generator=generator))
            left = int(torch.randint(width - box_width + 1, (1,), generator=generator))
            return Box(top, left, box_height, box_width)
    box_height = min(height, round(width / ASPECT[0]))
    box_width = min(width, round(height * ASPECT[1]))
    return Box((height - box_height) // 2, (width - box_width) // 2, box_height, box_width)
