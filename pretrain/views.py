"""Random views of an image: what each recipe varies, and the numbers one view is made of.

Drawing is apart from applying (augment.py). All numbers of a view are functions of the seed, the
epoch and the image, so that neither workers nor an interruption change a run.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CROP_TRIES = 10
NUM_UNIFORMS = 2 * CROP_TRIES + 2 + 1 + 4 + 4 + 1 + 2 + 1

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ViewRecipe:
    """Random crop, color jitter, grayscale, blur, flip; the defaults are MoCo v2's.

    Chen et al., arXiv:2003.04297; JCL names the same steps.
    """

    size_px: int = 224
    """Side of the square view."""
    crop_area: tuple[float, float] = (0.2, 1.0)
    """Share of the image's area."""
    crop_aspect: tuple[float, float] = (3 / 4, 4 / 3)
    """Width over height, drawn evenly in its logarithm."""
    jitter_probability: float = 0.8
    brightness: float = 0.4
    """Factors are drawn from 1 - x to 1 + x; so for contrast and saturation."""
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    """Shift in turns of the color circle, from -x to x."""
    gray_probability: float = 0.2
    blur_probability: float = 0.5
    blur_sigma_px: tuple[float, float] = (0.1, 2.0)
    flip_probability: float = 0.5
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Colors:
    """What happens to the pixels of n views after the crop."""

    jitter_order: Integers
    """(n, 4): at each place 0 brightness, 1 contrast, 2 saturation, 3 hue; -1 without jitter."""
    jitter: Floats
    """(n, 4): factors of brightness, contrast, saturation, and the hue shift in turns."""
    gray: NDArray[np.bool_]
    blur_sigma_px: Floats
    """(n,): 0 without blur."""
    flip: NDArray[np.bool_]


def uniforms(seed: int, epoch: int, index: int, num_views: int) -> Floats:
    """Numbers (V, NUM_UNIFORMS) in [0, 1) of the views of one image in one epoch."""
    # epoch and image are the high words of a counter: streams of two images never meet
    bits = np.random.Philox(key=seed, counter=[0, 0, epoch, index])
    return np.random.Generator(bits).random((num_views, NUM_UNIFORMS))


def draw_boxes(recipe: ViewRecipe, numbers: Floats, height: Integers, width: Integers) -> Integers:
    """Crops (n, 4) as top, left, height, width in px, of images of height and width (n,).

    numbers: (n, NUM_UNIFORMS). Ten tries, then the largest central crop of an allowed aspect, as
    torchvision's RandomResizedCrop.
    """
    height, width = height[:, None], width[:, None]
    tries = numbers[:, : 2 * CROP_TRIES].reshape(len(numbers), CROP_TRIES, 2)
    area = _between(tries[..., 0], recipe.crop_area) * height * width
    low, high = recipe.crop_aspect
    aspect = np.exp(_between(tries[..., 1], (np.log(low), np.log(high))))
    widths = np.round(np.sqrt(area * aspect)).astype(np.int64)
    heights = np.round(np.sqrt(area / aspect)).astype(np.int64)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fits.argmax(axis=1)[:, None]
    found = fits.any(axis=1, keepdims=True)
    # clipping a whole image to the allowed aspect gives the central crop
    whole_width = np.minimum(width, np.round(height * high).astype(np.int64))
    whole_height = np.minimum(height, np.round(width / low).astype(np.int64))
    crop_width = np.where(found, np.take_along_axis(widths, first, 1), whole_width)
    crop_height = np.where(found, np.take_along_axis(heights, first, 1), whole_height)
    places = numbers[:, 2 * CROP_TRIES : 2 * CROP_TRIES + 2]
    top = np.floor(places[:, :1] * (height - crop_height + 1)).astype(np.int64)
    left = np.floor(places[:, 1:] * (width - crop_width + 1)).astype(np.int64)
    top = np.where(found, top, (height - crop_height) // 2)
    left = np.where(found, left, (width - crop_width) // 2)
    return np.concatenate([top, left, crop_height, crop_width], axis=1)


def draw_colors(recipe: ViewRecipe, numbers: Floats) -> Colors:
    """Colors of n views from their numbers (n, NUM_UNIFORMS)."""
    rest = numbers[:, 2 * CROP_TRIES + 2 :]
    jittered = rest[:, :1] < recipe.jitter_probability
    order = rest[:, 1:5].argsort(axis=1)
    strength = np.array([recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue])
    jitter = (2 * rest[:, 5:9] - 1) * strength + np.array([1.0, 1.0, 1.0, 0.0])
    blurred = rest[:, 10] < recipe.blur_probability
    return Colors(
        jitter_order=np.where(jittered, order, -1),
        jitter=jitter,
        gray=rest[:, 9] < recipe.gray_probability,
        blur_sigma_px=np.where(blurred, _between(rest[:, 11], recipe.blur_sigma_px), 0.0),
        flip=rest[:, 12] < recipe.flip_probability,
    )


def _between(numbers: Floats, interval: tuple[float, float]) -> Floats:
    low, high = interval
    return low + (high - low) * numbers
