"""Random views of an image: recipe, random numbers, crops and colors.

The random numbers are functions of the run's seed, the epoch and the image, so they depend neither
on the workers nor on interruptions. augment.py and augment_device.py apply the colors. The crops
for probes on frozen networks have separate numbers: transfer/frozen/crops.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pretrain.parts.view import Augmentation, View
from pretrain.pixels.boxes import ASPECT, between, boxes_of
from pretrain.pixels.boxes import NUM_UNIFORMS as NUM_BOX_UNIFORMS
from pretrain.running.ranges import Fraction, Positive, PositiveFraction, Range, Real, SidePx

TEXTURE_KERNELS_PX = (3, 5, 7)
TEXTURE_STRENGTH = (0.3, 1.0)
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue.
ITU-R 601, as in PIL's mode "L"."""

COLUMNS: dict[Augmentation, slice] = {
    "crop": slice(0, NUM_BOX_UNIFORMS),
    "color": slice(22, 32),
    "blur": slice(32, 34),
    "flip": slice(34, 35),
    "rotation": slice(35, 37),
    "texture": slice(37, 42),
    "solarize": slice(42, 43),
}
"""Columns of each augmentation among a view's random numbers.
The augmentation is applied if its first number is below its probability. For color, the first
number decides about jitter and the last one about grayscale."""
NUM_UNIFORMS = 43

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ViewRecipe:
    """Probabilities and strengths of augmentations, in order of application.

    The defaults are MoCo v2's: Chen et al., arXiv:2003.04297; JCL names the same steps.
    """

    size_px: SidePx = 224
    """Size of the square large views in px."""
    crop_area: tuple[PositiveFraction, PositiveFraction] = (0.2, 1.0)
    """Range of the crop area of large views, as a fraction of the image."""
    small_size_px: SidePx = 96
    """Size of the square small views in px, for methods with small views."""
    small_crop_area: tuple[PositiveFraction, PositiveFraction] = (0.05, 0.14)
    """Range of the crop area of small views, as a fraction of the image."""
    crop_aspect: tuple[Positive, Positive] = ASPECT
    """Range of the crop's aspect ratio (width / height), sampled log-uniformly."""
    jitter_probability: Fraction = 0.8
    brightness: Fraction = 0.4
    """x: the factor is between 1 - x and 1 + x; also for contrast and saturation."""
    contrast: Fraction = 0.4
    saturation: Fraction = 0.4
    hue: Annotated[float, Range(0, 0.5)] = 0.1
    """x: the hue shift is between -x and x, in turns of the color circle."""
    gray_probability: Fraction = 0.2
    gray_first: bool = False
    """Apply grayscale before the jitter, as in MoCo v1."""
    blur_probability: Fraction = 0.5
    second_blur_probability: Fraction | None = None
    """Blur probability of all large views except the first, as in BYOL, arXiv:2006.07733. None: the
    same."""
    small_blur_probability: Fraction | None = None
    """Blur probability of small views. None: as for the first view."""
    blur_sigma_px: tuple[Positive, Positive] = (0.1, 2.0)
    """Range of the Gaussian's standard deviation in px."""
    solarize_probability: Fraction = 0.0
    """Probability to invert values of at least one half: BYOL, arXiv:2006.07733, appendix B."""
    second_solarize_probability: Fraction | None = None
    """Solarize probability of all large views except the first. None: the same. Small views have
    0."""
    flip_probability: Fraction = 0.5
    rotation_probability: Fraction = 0.0
    """Probability of a rotation by 90, 180 or 270 degrees: LooC, arXiv:2008.05659, appendix A."""
    texture_probability: Fraction = 0.0
    """Probability of a texture change: a style of the style bank, or otherwise a random filter of
    the luma, instead of the style transfer of arXiv:2008.05659."""
    mean: tuple[Real, Real, Real] = (0.485, 0.456, 0.406)
    std: tuple[Positive, Positive, Positive] = (0.229, 0.224, 0.225)

    def second_view_recipe(self) -> "ViewRecipe":
        """Return the recipe of large views except the first."""
        blur, solarize = self.second_blur_probability, self.second_solarize_probability
        return replace(
            self,
            blur_probability=self.blur_probability if blur is None else blur,
            solarize_probability=self.solarize_probability if solarize is None else solarize,
        )

    def small_view_recipe(self) -> "ViewRecipe":
        """Return the recipe of the small views."""
        blur = self.small_blur_probability
        return replace(
            self,
            size_px=self.small_size_px,
            crop_area=self.small_crop_area,
            blur_probability=self.blur_probability if blur is None else blur,
            solarize_probability=0.0,
        )


@dataclass(frozen=True)
class Colors:
    """Color changes of n views, applied after the crop."""

    jitter_order: Integers
    """(n, 4): order of operations.
    0 brightness, 1 contrast, 2 saturation, 3 hue; -1: no jitter."""
    jitter: Floats
    """(n, 4): factors of brightness, contrast and saturation; hue shift.
    The shift is in turns."""
    gray: NDArray[np.bool_]
    """(n,)."""
    blur_sigma_px: Floats
    """(n,); 0: no blur."""
    solarize: NDArray[np.bool_]
    """(n,)."""
    flip: NDArray[np.bool_]
    """(n,); exchanges left and right."""
    quarter_turns: Integers
    """(n,); 0 to 3, counterclockwise."""
    texture: Floats
    """(n, 3): kernel size in px, seed, strength.
    Size 0: no change. The seed is in [0, 1)."""


def draw_view_numbers(seed: int, epoch: int, index: int, views: Sequence[View]) -> Floats:
    """Draw random numbers for one image's views in one epoch.

    They are (V, NUM_UNIFORMS), in [0, 1]. If a view copies an augmentation, it gets the first
    view's numbers for it. If a view excludes an augmentation, the number that decides whether it is
    applied is 1, above every probability.
    """
    # epoch and image are the high words of the counter: streams of images never overlap
    bits = np.random.Philox(key=seed, counter=[0, 0, epoch, index])
    generator = np.random.Generator(bits)
    first = generator.random((len(views), COLUMNS["solarize"].start))
    # drawn last, so that the other numbers do not depend on it
    numbers = np.concatenate([first, generator.random((len(views), 1))], axis=1)
    for row, view in zip(numbers, views, strict=True):
        for augmentation in view.copies:
            row[COLUMNS[augmentation]] = numbers[0, COLUMNS[augmentation]]
        for augmentation in view.without:
            row[COLUMNS[augmentation].start] = 1.0
            if augmentation == "color":
                row[COLUMNS["color"].stop - 1] = 1.0
    return numbers


def draw_boxes(recipe: ViewRecipe, numbers: Floats, height: Integers, width: Integers) -> Integers:
    """Return crops (n, 4) of images with height and width (n,).

    A crop is top, left, height, width in px. numbers (n, NUM_UNIFORMS).
    """
    crop = numbers[:, COLUMNS["crop"]]
    return boxes_of(crop, height, width, recipe.crop_area, recipe.crop_aspect)


def draw_colors(recipe: ViewRecipe, numbers: Floats) -> Colors:
    """Return the colors of n views from their numbers (n, NUM_UNIFORMS)."""
    color, blur, solarize, flip, rotation, texture = (
        numbers[:, COLUMNS[name]]
        for name in ("color", "blur", "solarize", "flip", "rotation", "texture")
    )
    is_jittered = color[:, :1] < recipe.jitter_probability
    order = color[:, 1:5].argsort(axis=1)
    strength = np.array([recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue])
    jitter = (2 * color[:, 5:9] - 1) * strength + np.array([1.0, 1.0, 1.0, 0.0])
    is_blurred = blur[:, 0] < recipe.blur_probability
    is_rotated = rotation[:, 0] < recipe.rotation_probability
    has_texture = texture[:, 0] < recipe.texture_probability
    kernel_px = np.array(TEXTURE_KERNELS_PX)[
        (texture[:, 1] * len(TEXTURE_KERNELS_PX)).astype(np.int64)
    ]
    return Colors(
        jitter_order=np.where(is_jittered, order, -1),
        jitter=jitter,
        gray=color[:, 9] < recipe.gray_probability,
        blur_sigma_px=np.where(is_blurred, between(blur[:, 1], recipe.blur_sigma_px), 0.0),
        solarize=solarize[:, 0] < recipe.solarize_probability,
        flip=flip[:, 0] < recipe.flip_probability,
        quarter_turns=np.where(is_rotated, 1 + np.floor(3 * rotation[:, 1]).astype(np.int64), 0),
        texture=np.stack(
            [
                np.where(has_texture, kernel_px, 0),
                texture[:, 2],
                between(texture[:, 3], TEXTURE_STRENGTH),
            ],
            axis=1,
        ),
    )


def draw_style(recipe: ViewRecipe, numbers: Floats, num_styles: int) -> Integers:
    """Return each view's style (n,) in a style bank.

    -1: the original image. numbers (n, NUM_UNIFORMS).
    """
    texture = numbers[:, COLUMNS["texture"]]
    style = np.floor(texture[:, 4] * num_styles).astype(np.int64)
    return np.where(texture[:, 0] < recipe.texture_probability, style, -1)


def texture_kernels(texture: Floats) -> Floats:
    """Return random kernels (n, 7, 7) of texture (n, 3).

    Entries within kernel size k are N(0, 1 / k^2), others are zero.
    """
    largest_px = max(TEXTURE_KERNELS_PX)
    kernels = np.zeros((len(texture), largest_px, largest_px))
    for kernel, (kernel_px, seed, _) in zip(kernels, texture, strict=True):
        size = int(kernel_px)
        generator = np.random.default_rng(int(seed * 2**52))
        margin = (largest_px - size) // 2
        weights = generator.standard_normal((size, size)) / size
        kernel[margin : margin + size, margin : margin + size] = weights
    return kernels
