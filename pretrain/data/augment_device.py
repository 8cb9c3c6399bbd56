"""Augmentation of a batch on the training device, in floating point.

The operations are the same as in augment.py, but without rounding. `--colors-in device` relieves
the CPU cores that load the images. Each image of a batch has its own random numbers.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from pretrain.data.views import LUMA, TEXTURE_KERNELS_PX, Colors, ViewRecipe, texture_kernels

LARGEST_KERNEL_PX = max(TEXTURE_KERNELS_PX)
SIGMA, STRENGTH, KERNEL = 4, 5, 6
"""Columns of sigma, strength and kernel among an image's numbers.
The first four columns are jitter strengths."""


def color_numbers(colors: Colors, recipe: ViewRecipe) -> list[Tensor]:
    """Return numbers (n, w), rows and counts for `color`.

    Rows are the indices of the images that each operation changes, concatenated over operations;
    counts are their numbers per operation. Computing the rows on the device would make it wait.
    """
    masks = [
        colors.texture[:, 0] > 0,
        colors.gray & recipe.gray_first,
        *(
            colors.jitter_order[:, position] == n
            for position in range(len(JITTER))
            for n in range(len(JITTER))
        ),
        colors.gray & (not recipe.gray_first),
        colors.blur_sigma_px > 0,
        colors.solarize,
        colors.flip,
        *(colors.quarter_turns == quarters for quarters in (1, 2, 3)),
    ]
    numbers = [colors.jitter, colors.blur_sigma_px[:, None], colors.texture[:, 2:]]
    if recipe.texture_probability > 0:
        numbers.append(texture_kernels(colors.texture).reshape(len(colors.gray), -1))
    masks_of_operations = np.stack(masks)
    return [
        torch.from_numpy(np.concatenate(numbers, axis=1).astype(np.float32)),
        torch.from_numpy(masks_of_operations.nonzero()[1]),
        torch.from_numpy(masks_of_operations.sum(axis=1)),
    ]


def color(
    images: Tensor, numbers: Tensor, rows: Tensor, counts: list[int], recipe: ViewRecipe
) -> Tensor:
    """Apply all augmentations between crop and normalization.

    images (n, 3, S, S). Levels are float32 from 0 to 255. numbers, rows and counts come from
    `color_numbers`; the first two are on the device of the images. torch.compile supports this
    function.
    """

    def texture(images: Tensor, values: Tensor) -> Tensor:
        kernels = values[:, KERNEL:].unflatten(1, (LARGEST_KERNEL_PX, -1))
        return filter_luma(images, kernels, values[:, STRENGTH])

    def jitter(number: int) -> Operation:
        return lambda images, values: JITTER[number](images, values[:, number, None, None, None])

    def rotate(quarters: int) -> Operation:
        return lambda images, _: torch.rot90(images, quarters, (2, 3))

    def gray(images: Tensor, _: Tensor) -> Tensor:
        return to_gray(images)

    operations: list[Operation] = [
        texture,
        gray,
        *[jitter(number) for number in range(len(JITTER))] * len(JITTER),
        gray,
        lambda images, values: blur(images, values[:, SIGMA], recipe.blur_sigma_px[1]),
        lambda images, _: solarize(images),
        lambda images, _: images.flip(3),
        *[rotate(quarters) for quarters in (1, 2, 3)],
    ]
    images = images / 255
    for operation, changed in zip(operations, rows.split(counts), strict=True):
        if len(changed):
            images[changed] = operation(images[changed], numbers[changed])
    return images.mul_(255)


Operation = Callable[[Tensor, Tensor], Tensor]
"""Change of images (k, 3, S, S) by numbers (k, w)."""


def filter_luma(images: Tensor, kernels: Tensor, strength: Tensor) -> Tensor:
    """Blend each image's luma with a randomly filtered version.

    images (n, 3, H, W). kernels (n, 7, 7), strength (n,).
    """
    luma = _luma(images)
    radius = kernels.shape[-1] // 2
    padded = pad(luma.transpose(0, 1), (radius,) * 4, mode="reflect")
    filtered = conv2d(padded, kernels[:, None], groups=len(kernels)).transpose(0, 1)
    axes = (1, 2, 3)
    scale = luma.std(axes, keepdim=True) / filtered.std(axes, keepdim=True).clamp(min=1e-6)
    matched = (filtered - filtered.mean(axes, keepdim=True)) * scale
    change = matched + luma.mean(axes, keepdim=True) - luma
    # in YCbCr, a change of Y alone changes red, green and blue by the same amount
    return (images + strength[:, None, None, None] * change).clamp_(0, 1)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images with black.

    images (n, 3, H, W) in 0..1, factor (n, 1, 1, 1).
    """
    return (images * factor).clamp_(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images with their mean gray level.

    images (n, 3, H, W), factor (n, 1, 1, 1).
    """
    level = _luma(images).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(level, images, factor).clamp_(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images with their gray version.

    images (n, 3, H, W), factor (n, 1, 1, 1).
    """
    return torch.lerp(_luma(images), images, factor).clamp_(0, 1)


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Rotate the hue of images, in turns.

    images (n, 3, H, W), shift (n, 1, 1, 1). Value and saturation do not change.
    """
    largest, channel = images.max(dim=1, keepdim=True)
    range_ = largest - images.amin(dim=1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    offset = torch.where(
        channel == 0, green - blue, torch.where(channel == 1, blue - red, red - green)
    ) / range_.clamp(min=1e-8)
    sixth = offset + 2 * channel + 6 * shift
    # in the hexagon model, a channel is value - range * ramp of its distance on the circle
    offsets = torch.arange(5.0, 0.0, -2.0, device=images.device)[:, None, None]
    distance = (offsets + sixth) % 6
    return largest - range_ * torch.minimum(distance, 4 - distance).clamp_(0, 1)


JITTER: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (brightness, contrast, saturation, hue)
"""Operations by their indices in Colors.jitter_order."""


def to_gray(images: Tensor) -> Tensor:
    """Return images (n, 3, H, W) with three equal channels of luma."""
    return _luma(images).expand_as(images)


def blur(images: Tensor, sigma_px: Tensor, largest_sigma_px: float) -> Tensor:
    """Blur images by Gaussians, with replicated border pixels.

    images (n, 3, H, W), sigma_px (n,).
    """
    rows = _blur_matrix(sigma_px, images.shape[2], largest_sigma_px)
    columns = _blur_matrix(sigma_px, images.shape[3], largest_sigma_px)
    return rows[:, None] @ images @ columns[:, None].mT


def solarize(images: Tensor) -> Tensor:
    """Invert levels of 0.5 and above.

    images (n, 3, H, W) in 0..1.
    """
    return torch.where(images >= 0.5, 1 - images, images)


def _blur_matrix(sigma_px: Tensor, size: int, largest_sigma_px: float) -> Tensor:
    radius = math.ceil(3 * largest_sigma_px)
    offsets = torch.arange(-radius, radius + 1, device=sigma_px.device)
    taps = torch.exp(-0.5 * (offsets / sigma_px[:, None]) ** 2)
    taps = taps / taps.sum(dim=1, keepdim=True)
    indices = torch.arange(size, device=sigma_px.device)
    sources = (indices[:, None] + offsets).clamp(0, size - 1)
    matrix = taps.new_zeros(len(taps), size, size)
    shape = (len(taps), size, len(offsets))
    return matrix.scatter_add_(2, sources.expand(shape), taps[:, None].expand(shape))


def _luma(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, dim=1)
    # numbers, since uploading a tensor would wait for the device
    luma: Tensor = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    return luma
