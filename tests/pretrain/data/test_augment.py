"""Views in 8 bits against PIL's and floating point views.

Differences are in gray levels of 255.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps
from scipy.stats import ks_2samp
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision import transforms
from torchvision.transforms import functional

from pretrain.data import augment, augment_device
from pretrain.data.augment import blur, brightness, color, contrast, hue, saturation
from pretrain.data.views import NUM_UNIFORMS, Colors, ViewRecipe, draw_boxes, draw_colors
from pretrain.pixels.crops import crop

Pixels = NDArray[Any]
PILOperation = Callable[[Image.Image, float], Image.Image]
RECIPE = ViewRecipe(size_px=32)


def normalize(image: Pixels, recipe: ViewRecipe) -> Tensor:
    """(H, W, 3), uint8 -> (3, H, W)."""
    levels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    return augment.normalize(levels, recipe)[0]


def photograph(height: int = 64, width: int = 64, seed: int = 0) -> Pixels:
    """A photo-like image (H, W, 3), uint8, smooth with some detail.

    More of it is gray than in color.
    """
    generator = torch.Generator().manual_seed(seed)
    image = torch.full((1, 3, height, width), 0.5)
    for side, strength in ((3, 0.2), (8, 0.1), (24, 0.04)):
        noise = torch.randn(1, 4, side, side, generator=generator)
        smooth = strength * interpolate(noise, size=(height, width), mode="bicubic")
        image += smooth[:, :1] + 0.5 * smooth[:, 1:]
    levels = (image[0].permute(1, 2, 0).clamp(0, 1) * 255).round()
    return levels.to(torch.uint8).contiguous().numpy()


def levels_apart(ours: Pixels, theirs: Image.Image | Pixels) -> float:
    """Mean absolute difference."""
    return float(np.abs(ours.astype(np.float64) - np.asarray(theirs)).mean())


def levels(normal: Tensor) -> Pixels:
    """Gray levels (S, S, 3) of a normalized view (3, S, S)."""
    mean, std = (torch.tensor(value)[:, None, None] for value in (RECIPE.mean, RECIPE.std))
    return ((normal * std + mean) * 255).permute(1, 2, 0).numpy()


def colors_of(recipe: ViewRecipe, num_views: int) -> Colors:
    return draw_colors(recipe, np.random.default_rng(0).random((num_views, NUM_UNIFORMS)))


def blur_in_pil(image: Image.Image, sigma_px: float) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(sigma_px))


FACTORS, SHIFTS, SIGMAS_PX = (0.2, 0.613, 1.0, 1.271, 1.8), (-0.2, 0.0, 0.037, 0.1), (0.1, 0.9, 2.0)
OPERATIONS: list[tuple[Callable[..., Pixels], PILOperation, tuple[float, ...], float]] = [
    (brightness, functional.adjust_brightness, FACTORS, 0.03),
    (contrast, functional.adjust_contrast, FACTORS, 0.1),
    (saturation, functional.adjust_saturation, FACTORS, 0.25),
    (hue, functional.adjust_hue, SHIFTS, 0.4),
    (blur, blur_in_pil, SIGMAS_PX, 0.67),
]
"""Our function, PIL's, strengths, and the allowed mean difference in gray levels."""


def test_each_operation_is_pils_up_to_rounding(subtests: pytest.Subtests) -> None:
    image = photograph()
    for ours, theirs, strengths, bound in OPERATIONS:
        for strength in strengths:
            with subtests.test(ours=ours, strength=strength):
                expected = theirs(Image.fromarray(image), strength)
                assert levels_apart(ours(image, strength), expected) < bound


def test_solarization_is_pils() -> None:
    image, recipe = photograph(), ViewRecipe(solarize_probability=1.0)
    colors = draw_colors(recipe, np.full((1, NUM_UNIFORMS), 0.999))  # nothing else happens
    theirs = ImageOps.solarize(Image.fromarray(image))
    assert np.array_equal(color(image, colors, 0, recipe), np.asarray(theirs))


def in_pil(image: Image.Image, colors: Colors, row: int) -> Image.Image:
    """Apply jitter, gray, blur and flip from one row of the colors."""
    strengths = colors.jitter[row].tolist()
    for number in colors.jitter_order[row].tolist():
        image = OPERATIONS[number][1](image, strengths[number]) if number >= 0 else image
    if colors.gray[row]:
        image = functional.to_grayscale(image, num_output_channels=3)
    if colors.blur_sigma_px[row] > 0:
        image = blur_in_pil(image, float(colors.blur_sigma_px[row]))
    return functional.hflip(image) if colors.flip[row] else image


@pytest.mark.parametrize("strength", [0.4, 0.8])
def test_whole_views_are_pils(strength: float) -> None:
    recipe = ViewRecipe(
        brightness=strength, contrast=strength, saturation=strength, hue=strength / 4
    )
    colors = colors_of(recipe, 60)
    images = [photograph(seed=seed) for seed in range(60)]
    differences = [
        levels_apart(color(image, colors, row, recipe), in_pil(Image.fromarray(image), colors, row))
        for row, image in enumerate(images)
    ]
    assert np.mean(differences) < 0.5
    assert max(differences) < 1.2


@pytest.mark.parametrize("gray_first", [False, True])
def test_whole_views_are_those_of_floating_point(gray_first: bool) -> None:
    recipe = ViewRecipe(
        size_px=32, gray_first=gray_first, rotation_probability=0.5, texture_probability=0.5
    )
    colors = colors_of(recipe, 60)
    images = [photograph(32, 32, seed) for seed in range(60)]
    numbers, rows, counts = augment_device.color_numbers(colors, recipe)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float()
    colored = augment_device.color(pixels, numbers, rows, counts.tolist(), recipe)
    exact = augment.normalize(colored, recipe)
    ours = [normalize(color(i, colors, row, recipe), recipe) for row, i in enumerate(images)]
    differences = [levels_apart(levels(a), levels(b)) for a, b in zip(ours, exact, strict=True)]
    # PIL itself is 1.2 levels below floating point: each of its blends drops the fraction
    assert np.mean(differences) < 1.4
    assert max(differences) < 2.5


def mocos_view(image: Image.Image) -> Tensor:
    """A view by the code of MoCo: github.com/facebookresearch/moco."""
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    blur = transforms.Lambda(lambda i: i.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2))))
    steps = [
        transforms.RandomResizedCrop(RECIPE.size_px, (0.2, 1)),
        transforms.RandomApply([jitter], p=0.8),
        transforms.RandomGrayscale(p=0.2),
        transforms.RandomApply([blur], p=0.5),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(RECIPE.mean, RECIPE.std),
    ]
    view: Tensor = transforms.Compose(steps)(image)
    return view


@pytest.mark.parametrize("statistic", [np.mean, np.std])
def test_views_are_distributed_as_torchvisions(statistic: Callable[..., Any]) -> None:
    image, number = photograph(60, 80), 300
    numbers = np.random.default_rng(1).random((number, NUM_UNIFORMS))
    boxes = draw_boxes(RECIPE, numbers, np.full(number, 60), np.full(number, 80))
    colors = draw_colors(RECIPE, numbers)
    ours = [
        normalize(color(crop(image, box.tolist(), 32), colors, row, RECIPE), RECIPE)
        for row, box in enumerate(boxes)
    ]
    torch.manual_seed(0)
    theirs = [mocos_view(Image.fromarray(image)) for _ in range(number)]
    per_view = partial(statistic, axis=(1, 2))
    a, b = (np.array([per_view(view.numpy()) for view in views]) for views in (ours, theirs))
    for channel in range(3):
        assert ks_2samp(a[:, channel], b[:, channel]).pvalue > 1e-3
    spread = a.std(axis=0) * np.sqrt(2 / number)
    assert np.abs(a.mean(axis=0) - b.mean(axis=0)).max() < 4 * spread.max()
