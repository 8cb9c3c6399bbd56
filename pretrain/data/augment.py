"""Augmentation of one view at a time, in eight bits like PIL.

A view is (S, S, 3), uint8, and every operation rounds like PIL's; the tests bound the difference
from PIL. The training device only normalizes.
"""

import math
from collections.abc import Callable

import cv2
import numpy as np
from torch import Tensor

from pretrain.data.views import LUMA, Colors, Floats, ViewRecipe, texture_kernels
from pretrain.pixels.crops import orient
from pretrain.pixels.decoding import Pixels as Image

ROUND_DOWN = -0.499
"""Offset before OpenCV rounds to the nearest level.
PIL's blends truncate instead. Not -0.5, so that integers do not change."""
SOLARIZED = np.where(np.arange(256) < 128, np.arange(256), 255 - np.arange(256)).astype(np.uint8)
"""Table (256,) that inverts levels of 128 and above."""


def color(image: Image, colors: Colors, row: int, recipe: ViewRecipe) -> Image:
    """Return an image with one row of the colors applied.

    image (S, S, 3). These are all augmentations between crop and normalization. The input is not
    modified.
    """
    if colors.texture[row, 0] > 0:
        image = filter_luma(image, colors.texture[row])
    if recipe.gray_first and colors.gray[row]:
        image = to_gray(image)
    strengths = colors.jitter[row].tolist()
    for number in colors.jitter_order[row].tolist():
        if number >= 0:
            image = JITTER[number](image, strengths[number])
    if colors.gray[row] and not recipe.gray_first:
        image = to_gray(image)
    if colors.blur_sigma_px[row] > 0:
        image = blur(image, float(colors.blur_sigma_px[row]))
    if colors.solarize[row]:
        image = cv2.LUT(image, SOLARIZED)
    return orient(image, flip=bool(colors.flip[row]), quarters=int(colors.quarter_turns[row]))


def normalize(images: Tensor, recipe: ViewRecipe) -> Tensor:
    """Normalize images by the recipe's mean and std, in place.

    images (n, 3, S, S), float32 levels.
    """
    # numbers, since uploading a tensor would wait for the device
    for plane, mean, std in zip(images.unbind(dim=1), recipe.mean, recipe.std, strict=True):
        plane.sub_(255 * mean).div_(255 * std)
    return images


def brightness(image: Image, factor: float) -> Image:
    """Blend an image (S, S, 3) with black."""
    return _blend(image, factor * np.eye(3))


def contrast(image: Image, factor: float) -> Image:
    """Blend an image with its mean gray level.

    image (S, S, 3). The level is rounded to an integer.
    """
    level = math.floor(np.dot(LUMA, cv2.mean(image)[:3]) + 0.5)
    return _blend(image, factor * np.eye(3), (1 - factor) * level)


def saturation(image: Image, factor: float) -> Image:
    """Blend an image (S, S, 3) with its gray version."""
    return _blend(image, factor * np.eye(3) + (1 - factor) * np.array([LUMA] * 3))


def _blend(image: Image, weights: Floats, level: float = 0.0) -> Image:
    """Return weights (3, 3) times channels plus a level, clipped to 0..255."""
    offset = np.full((3, 1), level + ROUND_DOWN)
    return cv2.transform(image, np.hstack([weights, offset]))


def hue(image: Image, shift: float) -> Image:
    """Rotate the hue of (S, S, 3) by a shift in turns.

    Value and saturation do not change.
    """
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    # torchvision truncates, and shifts by 255 steps per turn
    hsv[..., 0] += np.uint8(int(shift * 255) % 256)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


JITTER: tuple[Callable[[Image, float], Image], ...] = (brightness, contrast, saturation, hue)
"""Operations by their indices in Colors.jitter_order."""


def to_gray(image: Image) -> Image:
    """Return an image (S, S, 3) with three equal channels of luma."""
    return cv2.cvtColor(_luma(image), cv2.COLOR_GRAY2RGB)


def blur(image: Image, sigma_px: float) -> Image:
    """Blur (S, S, 3) like PIL's GaussianBlur, with replicated border pixels."""
    taps = box_taps(sigma_px).astype(np.float32)  # float64 takes four times as long
    return cv2.sepFilter2D(image, -1, taps, taps, borderType=cv2.BORDER_REPLICATE)


def box_taps(sigma_px: float) -> Floats:
    """Return taps (k,) of three box filters with variance sigma^2.

    k is odd. The taps sum to 1. As in PIL, the boxes have a fractional first and last tap: Gwosdek
    et al., SSVM 2011.
    """
    variance = sigma_px**2 / 3
    # k equal taps have the variance (k^2 - 1) / 12; the outer taps add the difference
    radius = math.floor((math.sqrt(12 * variance + 1) - 1) / 2)
    whole = 2 * radius + 1
    outside = (radius + 1) ** 2
    edge = whole * (3 * variance - radius * (radius + 1)) / (6 * (outside - variance))
    box = np.ones(whole + 2)
    box[0] = box[-1] = edge
    box /= box.sum()
    return np.convolve(np.convolve(box, box), box)


def filter_luma(image: Image, texture: Floats) -> Image:
    """Blend an image's luma with a randomly filtered version.

    image (S, S, 3), texture (3,). It replaces style transfer by random convolutions (Xu et al.,
    ICLR 2021, arXiv:2007.13003) that preserve colors and the luma's mean and standard deviation.
    """
    (kernel,) = texture_kernels(texture[None])
    luma = _luma(image.astype(np.float32))  # float: the filter would amplify rounding errors
    filtered = cv2.filter2D(luma, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    scale = luma.std() / max(float(filtered.std()), 1e-6 * 255)
    matched = (filtered - filtered.mean()) * scale + luma.mean()
    change = texture[2] * (matched - luma)
    return cv2.add(image, cv2.merge([change] * 3), dtype=cv2.CV_8U)


def _luma(image: Image) -> Image:
    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
