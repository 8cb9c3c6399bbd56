"""Augmentation of whole batches on the device that trains.

The operations are those of torchvision's transforms on PIL images, but in floating point, and each
image of a batch has its own random numbers.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, pad

from pretrain.data.side_stream import Array
from pretrain.data.views import TEXTURE_KERNELS_PX, Colors, Floats, Integers, ViewRecipe

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as in PIL's mode "L"
LARGEST_KERNEL_PX = max(TEXTURE_KERNELS_PX)

Operation = Callable[[Tensor, Tensor], Tensor]
"""Change of chosen images (k, 3, S, S) by their numbers (k, ...)."""
ColorChange = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Change of images (k, 3, S, S) by strengths (k, 1, 1, 1), given the weights (3, 1, 1) of luma."""


class Constants(NamedTuple):
    """Numbers of every batch (3, 1, 1), which stay on the device: an upload would wait for it."""

    luma: Tensor
    mean: Tensor
    std: Tensor


def constants_on(device: torch.device, recipe: ViewRecipe) -> Constants:
    """Return the constants of a recipe's views on a device."""
    rows = torch.tensor([LUMA, recipe.mean, recipe.std]).to(device)
    return Constants(*rows[:, :, None, None])


def color_changes(colors: Colors, recipe: ViewRecipe) -> list[Array]:
    """Return rows (k,) and numbers (k, w) for each operation of `finish`, one after the other.

    The rows are those of the colors that the operation changes.
    """
    textured = (colors.texture[:, 0] > 0).nonzero()[0]
    chosen = colors.texture[textured]
    kernels = texture_kernels(chosen).reshape(len(chosen), LARGEST_KERNEL_PX**2)
    gray = _rows_to_change(colors.gray)
    changes = [(textured, np.concatenate([chosen[:, 2:], kernels], axis=1))]
    changes += [gray] * recipe.gray_first
    # for each place in the order, all images that have an operation there are changed together
    for place in range(len(JITTER)):
        for number in range(len(JITTER)):
            rows = (colors.jitter_order[:, place] == number).nonzero()[0]
            changes.append((rows, colors.jitter[rows, number, None]))
    changes += [gray] * (not recipe.gray_first)
    blurred = (colors.blur_sigma_px > 0).nonzero()[0]
    changes.append((blurred, colors.blur_sigma_px[blurred, None]))
    changes += [_rows_to_change(colors.solarize), _rows_to_change(colors.flip)]
    changes += [_rows_to_change(colors.quarter_turns == turns) for turns in (1, 2, 3)]
    return [
        array
        for rows, numbers in changes
        for array in (rows.astype(np.int64), numbers.astype(np.float32))
    ]


def _rows_to_change(mask: NDArray[np.bool_]) -> tuple[Integers, Floats]:
    """Return the rows of a mask (n,), and no numbers for each."""
    rows = mask.nonzero()[0]
    return rows, np.zeros((len(rows), 0))


def finish(
    images: Tensor, changes: Sequence[Tensor], recipe: ViewRecipe, constants: Constants
) -> Tensor:
    """Apply all after the crop to (n, 3, S, S) in 0..1, and normalize; may change its input.

    changes: those of `color_changes` on the device of the images.
    """
    operations = _operations(recipe, constants.luma)
    for operation, rows, numbers in zip(operations, changes[::2], changes[1::2], strict=True):
        if len(rows):
            images[rows] = operation(images[rows], numbers)
    return normalize(images, constants)


def _operations(recipe: ViewRecipe, luma: Tensor) -> list[Operation]:
    """Return the operations between crop and normalization in their order."""

    def texture(images: Tensor, numbers: Tensor) -> Tensor:
        kernels = numbers[:, 1:].unflatten(1, (LARGEST_KERNEL_PX, -1))
        return filter_luma(images, kernels, numbers[:, 0], luma)

    def gray(images: Tensor, _: Tensor) -> Tensor:
        return to_gray(images, luma)

    def jitter(change: ColorChange, images: Tensor, numbers: Tensor) -> Tensor:
        return change(images, numbers[:, :, None, None], luma)

    def turn(turns: int, images: Tensor, _: Tensor) -> Tensor:
        return torch.rot90(images, turns, (2, 3))

    return [
        texture,
        *[gray] * recipe.gray_first,
        *[partial(jitter, change) for change in JITTER] * len(JITTER),
        *[gray] * (not recipe.gray_first),
        lambda images, numbers: blur(images, numbers[:, 0], recipe.blur_sigma_px[1]),
        lambda images, _: solarize(images),
        lambda images, _: images.flip(3),
        *[partial(turn, turns) for turns in (1, 2, 3)],
    ]


def normalize(images: Tensor, constants: Constants) -> Tensor:
    """Normalize (n, 3, H, W) in 0..1 by the recipe's mean and std, in place."""
    return images.sub_(constants.mean).div_(constants.std)


def filter_luma(images: Tensor, kernels: Tensor, strength: Tensor, weights: Tensor) -> Tensor:
    """Blend the luma of (n, 3, H, W) with a random filter of itself.

    kernels (n, 7, 7), strength (n,), luma weights (3, 1, 1). It replaces style transfer by random
    convolutions (Xu et al., ICLR 2021, arXiv:2007.13003) that keep colors and the luma's mean and
    standard deviation.
    """
    luma = _luma(images, weights)
    reach = kernels.shape[-1] // 2
    padded = pad(luma.transpose(0, 1), (reach,) * 4, mode="reflect")
    filtered = conv2d(padded, kernels[:, None], groups=len(kernels)).transpose(0, 1)
    axes = (1, 2, 3)
    spread = luma.std(axes, keepdim=True) / filtered.std(axes, keepdim=True).clamp(min=1e-6)
    matched = (filtered - filtered.mean(axes, keepdim=True)) * spread
    change = matched + luma.mean(axes, keepdim=True) - luma
    # in YCbCr a change of Y alone moves red, green and blue by the same amount
    return (images + strength[:, None, None, None] * change).clamp_(0, 1)


def texture_kernels(texture: Floats) -> Floats:
    """Return random kernels (n, 7, 7) of texture (n, 3): N(0, 1 / k^2) within side k, else zero."""
    kernels = np.zeros((len(texture), LARGEST_KERNEL_PX, LARGEST_KERNEL_PX))
    for kernel, (side, seed, _) in zip(kernels, texture, strict=True):
        size = int(side)
        generator = np.random.default_rng(int(seed * 2**52))
        margin = (LARGEST_KERNEL_PX - size) // 2
        weights = generator.standard_normal((size, size)) / size
        kernel[margin : margin + size, margin : margin + size] = weights
    return kernels


def brightness(images: Tensor, factor: Tensor, _: Tensor) -> Tensor:
    """Blend images (n, 3, H, W) in 0..1 with black by factor (n, 1, 1, 1)."""
    return (images * factor).clamp_(0, 1)


def contrast(images: Tensor, factor: Tensor, luma: Tensor) -> Tensor:
    """Blend images (n, 3, H, W) with their mean gray level by factor (n, 1, 1, 1)."""
    level = _luma(images, luma).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(level, images, factor).clamp_(0, 1)


def saturation(images: Tensor, factor: Tensor, luma: Tensor) -> Tensor:
    """Blend images (n, 3, H, W) with their gray version by factor (n, 1, 1, 1)."""
    return torch.lerp(_luma(images, luma), images, factor).clamp_(0, 1)


def hue(images: Tensor, shift: Tensor, _: Tensor) -> Tensor:
    """Turn the hue of (n, 3, H, W) by shift (n, 1, 1, 1) in turns; value and saturation stay."""
    largest, where = images.max(dim=1, keepdim=True)
    span = largest - images.amin(dim=1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    offset = torch.where(
        where == 0, green - blue, torch.where(where == 1, blue - red, red - green)
    ) / span.clamp(min=1e-8)
    sixth = offset + 2 * where + 6 * shift
    # in the hexagon model a channel is value - span * ramp of its distance on the circle
    channels = torch.arange(5.0, 0.0, -2.0, device=images.device)[:, None, None]
    distance = (channels + sixth) % 6
    return largest - span * torch.minimum(distance, 4 - distance).clamp_(0, 1)


JITTER: tuple[ColorChange, ...] = (brightness, contrast, saturation, hue)
"""Operations by their numbers in Colors.jitter_order."""


def to_gray(images: Tensor, luma: Tensor) -> Tensor:
    """Return images (n, 3, H, W) with three equal channels of luma."""
    return _luma(images, luma).expand_as(images)


def blur(images: Tensor, sigma_px: Tensor, largest_sigma_px: float) -> Tensor:
    """Blur (n, 3, H, W) by Gaussians of sigma (n,), with replicated border pixels."""
    rows = _blur_matrix(sigma_px, images.shape[2], largest_sigma_px)
    columns = _blur_matrix(sigma_px, images.shape[3], largest_sigma_px)
    return rows[:, None] @ images @ columns[:, None].mT


def solarize(images: Tensor) -> Tensor:
    """Invert the levels of (n, 3, H, W) in 0..1 that are 0.5 or more."""
    return torch.where(images >= 0.5, 1 - images, images)


def _blur_matrix(sigma_px: Tensor, size: int, largest_sigma_px: float) -> Tensor:
    reach = math.ceil(3 * largest_sigma_px)
    offsets = torch.arange(-reach, reach + 1, device=sigma_px.device)
    taps = torch.exp(-0.5 * (offsets / sigma_px[:, None]) ** 2)
    taps = taps / taps.sum(dim=1, keepdim=True)
    places = torch.arange(size, device=sigma_px.device)
    sources = (places[:, None] + offsets).clamp(0, size - 1)
    matrix = taps.new_zeros(len(taps), size, size)
    shape = (len(taps), size, len(offsets))
    return matrix.scatter_add_(2, sources.expand(shape), taps[:, None].expand(shape))


def _luma(images: Tensor, weights: Tensor) -> Tensor:
    return (images * weights).sum(dim=1, keepdim=True)
