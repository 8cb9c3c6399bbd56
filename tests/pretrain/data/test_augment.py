"""Single operations against torchvision's on 8-bit PIL images, in gray levels of 255."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms import functional

from pretrain.data import augment
from pretrain.data.augment import blur, color_changes, constants_on, texture_kernels
from pretrain.data.side_stream import pack, unpack
from pretrain.data.views import NUM_UNIFORMS, Colors, Floats, ViewRecipe, draw_colors
from tests.rounding import assert_equal_up_to_rounding, rounding_error

CPU = torch.device("cpu")
LUMA = constants_on(CPU, ViewRecipe()).luma


def finish(images: Tensor, colors: Colors, recipe: ViewRecipe) -> Tensor:
    """Images after one upload of what colors change."""
    changes = unpack(pack(color_changes(colors, recipe)), CPU)
    return augment.finish(images, changes, recipe, constants_on(CPU, recipe))


def to_gray(images: Tensor) -> Tensor:
    return augment.to_gray(images, LUMA)


def filter_luma(images: Tensor, texture: Floats) -> Tensor:
    kernels = torch.from_numpy(texture_kernels(texture)).float()
    strength = torch.from_numpy(texture[:, 2]).float()
    return augment.filter_luma(images, kernels, strength, LUMA)


def pixels(height: int = 40, width: int = 50) -> Tensor:
    """A smooth colored image (1, 3, H, W), uint8."""
    coarse = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    smooth = interpolate(coarse, size=(height, width), mode="bicubic").clamp(0, 1)
    return (smooth * 255).round().to(torch.uint8)


def as_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image[0].permute(1, 2, 0).contiguous().numpy())


def levels_apart(ours: Tensor, theirs: Image.Image) -> Tensor:
    """Absolute differences; ours (1, 3, H, W) in 0..1."""
    expected = torch.from_numpy(np.array(theirs)).permute(2, 0, 1)[None]
    return (ours * 255 - expected).abs()


def test_changes_of_color_are_torchvisions_of_floating_point(subtests: pytest.Subtests) -> None:
    blends, shifts = (0.6, 1.4), (-0.1, -0.03, 0.07, 0.1)
    for name, change, strengths in zip(
        ("brightness", "contrast", "saturation", "hue"),
        augment.JITTER,
        (blends, blends, blends, shifts),
        strict=True,
    ):
        for strength in strengths:
            with subtests.test(name=name, strength=strength):
                image = pixels() / 255
                result = change(image, torch.full((1, 1, 1, 1), strength), LUMA)
                exact = getattr(functional, f"adjust_{name}")(image, strength)
                # torchvision has 0.2989 for red's share of luma
                torch.testing.assert_close(result, exact, rtol=0, atol=1e-4)


def test_blur_is_within_one_level_on_average(subtests: pytest.Subtests) -> None:
    for sigma_px in [0.1, 0.7, 1.3, 2.0]:
        with subtests.test(sigma_px=sigma_px):
            image = pixels()
            theirs = as_pil(image).filter(ImageFilter.GaussianBlur(sigma_px))
            apart = levels_apart(blur(image / 255, torch.tensor([sigma_px]), 2.0), theirs)
            assert apart.mean() < 1
            assert apart.max() < 3


def test_each_image_of_a_batch_gets_its_own_numbers() -> None:
    recipe = ViewRecipe(size_px=16)
    colors = draw_colors(recipe, np.random.default_rng(0).random((30, NUM_UNIFORMS)))
    images = torch.rand(30, 3, 16, 16)
    together = finish(images.clone(), colors, recipe)
    for place in (0, 7, 29):
        one = slice(place, place + 1)
        alone = type(colors)(*(values[one] for values in vars(colors).values()))
        torch.testing.assert_close(finish(images[one].clone(), alone, recipe), together[one])


def texture_of(*rows: tuple[float, float, float]) -> Floats:
    """Kernel side in px, seed, strength of each image."""
    return np.array(rows)


def mild(height: int = 24, width: int = 24) -> Tensor:
    """An image (1, 3, H, W) in 0.4..0.6, far enough from black and white for any filter."""
    return 0.4 + 0.2 * pixels(height, width) / 255


def test_a_texture_is_the_correlation_with_its_kernel_written_out() -> None:
    image, texture = mild(9, 8), texture_of((5, 0.7, 0.4))
    luma = to_gray(image)[0, 0].double().numpy()
    padded = np.pad(luma, 3, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7))
    filtered = (windows * texture_kernels(texture)[0]).sum(axis=(2, 3))
    matched = (filtered - filtered.mean()) / filtered.std() * luma.std() + luma.mean()
    expected = image + torch.from_numpy(0.4 * (matched - luma)).float()
    assert_equal_up_to_rounding(filter_luma(image, texture), expected)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_kernels_have_variance_one_over_their_area_and_end_at_their_side(side: int) -> None:
    seeds = np.random.default_rng(0).random(1500)
    kernels = texture_kernels(np.stack([np.full(1500, side), seeds, np.ones(1500)], axis=1))
    margin = (7 - side) // 2
    inside = kernels[:, margin : 7 - margin, margin : 7 - margin]
    assert np.abs(kernels).sum() == pytest.approx(np.abs(inside).sum())
    assert inside.var() == pytest.approx(1 / side**2, rel=0.05)
    assert inside.mean() == pytest.approx(0, abs=0.01)


def one_color(recipe: ViewRecipe) -> Colors:
    return draw_colors(recipe, np.full((1, NUM_UNIFORMS), 0.5))


PLAIN_RECIPE = ViewRecipe(
    jitter_probability=0,
    gray_probability=0,
    blur_probability=0,
    flip_probability=0,
    mean=(0, 0, 0),
    std=(1, 1, 1),
)


def test_four_quarter_turns_are_none_and_each_is_pils() -> None:
    image = pixels(24, 24) / 255
    colors, turned = one_color(PLAIN_RECIPE), image
    colors.quarter_turns[:] = 1
    for number in range(1, 5):
        turned = finish(turned.clone(), colors, PLAIN_RECIPE)
        theirs = as_pil(pixels(24, 24)).rotate(90 * number)
        assert levels_apart(turned, theirs).max() < rounding_error(torch.float32, magnitude=255)
    assert torch.equal(turned, image)


def test_gray_comes_before_the_jitter_only_where_the_recipe_says_so() -> None:
    # a gray image has no color to turn or to strengthen; a jittered one has another luma
    image = pixels(16, 16) / 255
    results = {}
    for gray_first in (False, True):
        recipe = replace(PLAIN_RECIPE, gray_first=gray_first)
        colors = one_color(recipe)
        colors.gray[:], colors.jitter_order[:] = True, [3, 2, 1, 0]
        colors.jitter[:] = [1.0, 1.0, 1.0, 0.3]
        results[gray_first] = finish(image.clone(), colors, recipe)
    turned = augment.JITTER[3](image, torch.full((1, 1, 1, 1), 0.3), LUMA)
    torch.testing.assert_close(results[True], to_gray(image))
    torch.testing.assert_close(results[False], to_gray(turned))
    assert (results[True] - results[False]).abs().max() > 0.05
