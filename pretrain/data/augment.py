"""Augmentation of whole batches on the device that trains.

The operations are those of torchvision's transforms on PIL images, but in floating point, and each
image of a batch has its own random numbers.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, pad

from pretrain.data.random_numbers import Floats
from pretrain.data.views import TEXTURE_KERNELS_PX, Colors, Integers, ViewRecipe

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as in PIL's mode "L"


def crop(pixels: Tensor, boxes: Integers, size_px: int) -> Tensor:
    """Cut boxes (n, 4) out of images (n, 3, H, W) and resize them to (n, 3, S, S) in 0..1.

    Bilinear with antialiasing. Pixels outside a box have no effect, so images may be padded.
    """
    corners = torch.from_numpy(boxes).to(pixels.device, torch.float32)
    top, left, height, width = corners.unbind(dim=1)
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


def finish(images: Tensor, colors: Colors, recipe: ViewRecipe) -> Tensor:
    """Apply all after the crop to (n, 3, S, S) in 0..1, and normalize; may change its input."""
    textured = colors.texture[:, 0] > 0
    _apply_where(images, textured, lambda chosen: filter_luma(chosen, colors.texture[textured]))
    if recipe.gray_first:
        _apply_where(images, colors.gray, to_gray)
    jitter_colors(images, colors)
    if not recipe.gray_first:
        _apply_where(images, colors.gray, to_gray)
    blurred = colors.blur_sigma_px > 0
    sigma = torch.from_numpy(colors.blur_sigma_px[blurred]).to(images.device, torch.float32)
    _apply_where(images, blurred, lambda chosen: blur(chosen, sigma, recipe.blur_sigma_px[1]))
    _apply_where(images, colors.solarize, solarize)
    _apply_where(images, colors.flip, lambda chosen: chosen.flip(3))
    for turns in (1, 2, 3):
        turned = colors.quarter_turns == turns
        _apply_where(images, turned, partial(torch.rot90, k=turns, dims=(2, 3)))
    return normalize(images, recipe)


def normalize(images: Tensor, recipe: ViewRecipe) -> Tensor:
    """Normalize (n, 3, H, W) in 0..1 by the recipe's mean and std, in place."""
    mean = torch.tensor(recipe.mean, device=images.device)[:, None, None]
    std = torch.tensor(recipe.std, device=images.device)[:, None, None]
    return images.sub_(mean).div_(std)


def filter_luma(images: Tensor, texture: Floats) -> Tensor:
    """Blend the luma of (n, 3, H, W) with a random filter of itself; texture (n, 3) as in Colors.

    It replaces style transfer by random convolutions (Xu et al., ICLR 2021, arXiv:2007.13003) that
    keep colors and the luma's mean and standard deviation.
    """
    kernels = torch.from_numpy(texture_kernels(texture)).to(images.device, torch.float32)
    strength = torch.from_numpy(texture[:, 2]).to(images.device, torch.float32)[:, None, None, None]
    luma = _luma(images)
    reach = kernels.shape[-1] // 2
    padded = pad(luma.transpose(0, 1), (reach,) * 4, mode="reflect")
    filtered = conv2d(padded, kernels[:, None], groups=len(kernels)).transpose(0, 1)
    axes = (1, 2, 3)
    spread = luma.std(axes, keepdim=True) / filtered.std(axes, keepdim=True).clamp(min=1e-6)
    matched = (filtered - filtered.mean(axes, keepdim=True)) * spread
    change = strength * (matched + luma.mean(axes, keepdim=True) - luma)
    # in YCbCr a change of Y alone moves red, green and blue by the same amount
    return (images + change).clamp_(0, 1)


def texture_kernels(texture: Floats) -> Floats:
    """Return random kernels (n, 7, 7) of texture (n, 3): N(0, 1 / k^2) within side k, else zero."""
    largest = max(TEXTURE_KERNELS_PX)
    kernels = np.zeros((len(texture), largest, largest))
    for kernel, (side, seed, _) in zip(kernels, texture, strict=True):
        size = int(side)
        generator = np.random.default_rng(int(seed * 2**52))
        margin = (largest - size) // 2
        weights = generator.standard_normal((size, size)) / size
        kernel[margin : margin + size, margin : margin + size] = weights
    return kernels


def jitter_colors(images: Tensor, colors: Colors) -> None:
    """Jitter images (n, 3, S, S) in place, each with the four operations in its own order."""
    strengths = torch.from_numpy(colors.jitter).to(images.device, torch.float32)
    operations = (brightness, contrast, saturation, hue)
    # for each place in the order, all images that have an operation there are changed together
    for place in range(len(operations)):
        for number, operation in enumerate(operations):
            chosen = (colors.jitter_order[:, place] == number).nonzero()[0]
            if len(chosen):
                rows = torch.from_numpy(chosen).to(images.device)
                strength = strengths[rows, number][:, None, None, None]
                images[rows] = operation(images[rows], strength)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images (n, 3, H, W) in 0..1 with black by factor (n, 1, 1, 1)."""
    return (images * factor).clamp_(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images (n, 3, H, W) with their mean gray level by factor (n, 1, 1, 1)."""
    level = _luma(images).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(level, images, factor).clamp_(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend images (n, 3, H, W) with their gray version by factor (n, 1, 1, 1)."""
    return torch.lerp(_luma(images), images, factor).clamp_(0, 1)


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of (n, 3, H, W) by shift (n, 1, 1, 1) in turns; value and saturation stay."""
    largest, where = images.max(dim=1, keepdim=True)
    span = largest - images.amin(dim=1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    offset = torch.where(
        where == 0, green - blue, torch.where(where == 1, blue - red, red - green)
    ) / span.clamp(min=1e-8)
    sixth = offset + 2 * where + 6 * shift
    # in the hexagon model a channel is value - span * ramp of its distance on the circle
    channels = torch.tensor([5.0, 3.0, 1.0], device=images.device)[:, None, None]
    distance = (channels + sixth) % 6
    return largest - span * torch.minimum(distance, 4 - distance).clamp_(0, 1)


def to_gray(images: Tensor) -> Tensor:
    """Return images (n, 3, H, W) with three equal channels of luma."""
    return _luma(images).expand_as(images)


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


def _luma(images: Tensor) -> Tensor:
    weights = torch.tensor(LUMA, device=images.device)[:, None, None]
    return (images * weights).sum(dim=1, keepdim=True)


def _apply_where(
    images: Tensor, mask: NDArray[np.bool_], operation: Callable[[Tensor], Tensor]
) -> None:
    if mask.any():
        rows = torch.from_numpy(mask.nonzero()[0]).to(images.device)
        images[rows] = operation(images[rows])
