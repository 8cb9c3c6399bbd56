"""Floating point operations against torchvision's, PIL's and a plain correlation."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms import functional

from pretrain.data import augment_device
from pretrain.data.augment_device import blur, color, color_numbers
from pretrain.data.views import NUM_UNIFORMS, Colors, ViewRecipe, draw_colors, texture_kernels
from tests.rounding import assert_equal_up_to_rounding


def pixels(height: int = 40, width: int = 50) -> Tensor:
    """A smooth colored image (1, 3, H, W), uint8."""
    coarse = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    smooth = interpolate(coarse, size=(height, width), mode="bicubic").clamp(0, 1)
    return (smooth * 255).round().to(torch.uint8)


def test_changes_of_color_are_torchvisions_of_floating_point(subtests: pytest.Subtests) -> None:
    blends, shifts = (0.6, 1.4), (-0.1, -0.03, 0.07, 0.1)
    for name, change, strengths in zip(
        ("brightness", "contrast", "saturation", "hue"),
        augment_device.JITTER,
        (blends, blends, blends, shifts),
        strict=True,
    ):
        for strength in strengths:
            with subtests.test(name=name, strength=strength):
                image = pixels() / 255
                result = change(image, torch.full((1, 1, 1, 1), strength))
                exact = getattr(functional, f"adjust_{name}")(image, strength)
                # torchvision has 0.2989 for red's share of luma
                torch.testing.assert_close(result, exact, rtol=0, atol=1e-4)


def test_blur_is_pils_within_one_level_on_average(subtests: pytest.Subtests) -> None:
    image = pixels()
    photograph = Image.fromarray(image[0].permute(1, 2, 0).contiguous().numpy())
    for sigma_px in [0.1, 0.7, 1.3, 2.0]:
        with subtests.test(sigma_px=sigma_px):
            theirs = np.array(photograph.filter(ImageFilter.GaussianBlur(sigma_px)))
            ours = 255 * blur(image / 255, torch.tensor([sigma_px]), 2.0)
            difference = (ours[0] - torch.from_numpy(theirs).permute(2, 0, 1)).abs()
            assert difference.mean() < 1
            assert difference.max() < 3


def test_a_texture_is_the_correlation_with_its_kernel_written_out() -> None:
    # far enough from black and white for any filter
    image = 0.4 + 0.2 * pixels(9, 8) / 255
    texture = np.array([[5, 0.7, 0.4]])  # kernel side in px, seed, strength
    luma = augment_device.to_gray(image)[0, 0].double().numpy()
    padded = np.pad(luma, 3, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7))
    kernels = texture_kernels(texture)
    filtered = (windows * kernels[0]).sum(axis=(2, 3))
    matched = (filtered - filtered.mean()) / filtered.std() * luma.std() + luma.mean()
    expected = image + torch.from_numpy(0.4 * (matched - luma)).float()
    result = augment_device.filter_luma(
        image, torch.from_numpy(kernels).float(), torch.tensor([0.4])
    )
    assert_equal_up_to_rounding(result, expected)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_kernels_have_variance_one_over_their_area(side: int) -> None:
    seeds = np.random.default_rng(0).random(1500)
    kernels = texture_kernels(np.stack([np.full(1500, side), seeds, np.ones(1500)], axis=1))
    margin = (7 - side) // 2
    inside = kernels[:, margin : 7 - margin, margin : 7 - margin]
    assert np.abs(kernels).sum() == pytest.approx(np.abs(inside).sum())
    assert inside.var() == pytest.approx(1 / side**2, rel=0.05)
    assert inside.mean() == pytest.approx(0, abs=0.01)


def test_gray_comes_before_the_jitter_only_where_the_recipe_says_so() -> None:
    # a gray image has no color to turn or to strengthen; a jittered one has another luma
    image = pixels(16, 16) / 255
    results = {}
    for gray_first in (False, True):
        recipe = ViewRecipe(gray_first=gray_first)
        colors = unchanged()
        colors.gray[:], colors.jitter_order[:] = True, [3, 2, 1, 0]
        colors.jitter[:] = [1.0, 1.0, 1.0, 0.3]
        numbers, rows, counts = color_numbers(colors, recipe)
        results[gray_first] = color(255 * image, numbers, rows, counts.tolist(), recipe) / 255
    turned = augment_device.JITTER[3](image, torch.full((1, 1, 1, 1), 0.3))
    torch.testing.assert_close(results[True], augment_device.to_gray(image))
    torch.testing.assert_close(results[False], augment_device.to_gray(turned))
    assert (results[True] - results[False]).abs().max() > 0.05


def unchanged() -> Colors:
    """Colors of one view that do not change it."""
    recipe = ViewRecipe(jitter_probability=0, blur_probability=0, flip_probability=0)
    return draw_colors(recipe, np.full((1, NUM_UNIFORMS), 0.5))


def test_the_compiler_takes_the_coloring_as_one_graph() -> None:
    recipe = ViewRecipe(rotation_probability=0.5, texture_probability=0.5)
    sampled = draw_colors(recipe, np.random.default_rng(0).random((8, NUM_UNIFORMS)))
    numbers, rows, counts = color_numbers(sampled, recipe)
    images = pixels(16, 16).expand(8, -1, -1, -1).float()
    compiled = torch.compile(color, backend="aot_eager", fullgraph=True)
    arguments = images, numbers, rows, counts.tolist(), recipe
    assert_equal_up_to_rounding(compiled(*arguments), color(*arguments), magnitude=255.0)
