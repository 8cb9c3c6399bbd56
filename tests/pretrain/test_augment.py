"""Single operations against torchvision's on 8-bit PIL images, in gray levels of 255."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms import functional

from pretrain.augment import blur, brightness, contrast, crop, finish, hue, saturation, to_gray
from pretrain.views import NUM_UNIFORMS, ViewRecipe, draw_colors

Operation = Callable[[Tensor, Tensor], Tensor]
PILOperation = Callable[[Image.Image, float], Image.Image]


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


@pytest.mark.parametrize(
    ("ours", "theirs", "strength"),
    [
        (brightness, functional.adjust_brightness, 0.6),
        (brightness, functional.adjust_brightness, 1.4),
        (contrast, functional.adjust_contrast, 0.6),
        (contrast, functional.adjust_contrast, 1.4),
        (saturation, functional.adjust_saturation, 0.6),
        (saturation, functional.adjust_saturation, 1.4),
    ],
)
def test_blends_are_within_two_levels(
    ours: Operation, theirs: PILOperation, strength: float
) -> None:
    image = pixels()
    result = ours(image / 255, torch.tensor([strength])[:, None, None, None])
    assert levels_apart(result, theirs(as_pil(image), strength)).max() < 2


@pytest.mark.parametrize("shift", [-0.1, -0.03, 0.07, 0.1])
def test_hue_is_that_of_floating_point_and_within_two_levels_of_pil_on_average(
    shift: float,
) -> None:
    # PIL keeps hue and saturation in eight bits each, so single pixels are further off
    image = pixels()
    result = hue(image / 255, torch.tensor([shift])[:, None, None, None])
    exact = functional.adjust_hue(image / 255, shift)
    torch.testing.assert_close(result, exact, atol=1e-5, rtol=0)
    assert levels_apart(result, functional.adjust_hue(as_pil(image), shift)).mean() < 2


def test_a_full_turn_of_hue_changes_nothing_and_a_third_permutes_the_channels() -> None:
    image = pixels() / 255
    turn = partial(torch.full, (1, 1, 1, 1))
    torch.testing.assert_close(hue(image, turn(1.0)), image, atol=1e-5, rtol=0)
    torch.testing.assert_close(hue(image, turn(1 / 3)), image[:, [2, 0, 1]], atol=1e-5, rtol=0)


def test_gray_is_within_one_level() -> None:
    image = pixels()
    theirs = functional.to_grayscale(as_pil(image), num_output_channels=3)
    assert levels_apart(to_gray(image / 255), theirs).max() < 1


@pytest.mark.parametrize("sigma_px", [0.1, 0.7, 1.3, 2.0])
def test_blur_is_within_one_level_on_average(sigma_px: float) -> None:
    # PIL stands in for the Gaussian by three box filters
    image = pixels()
    theirs = as_pil(image).filter(ImageFilter.GaussianBlur(sigma_px))
    apart = levels_apart(blur(image / 255, torch.tensor([sigma_px]), 2.0), theirs)
    assert apart.mean() < 1
    assert apart.max() < 3


@pytest.mark.parametrize("box", [(0, 0, 40, 50), (3, 5, 30, 20), (10, 40, 7, 9)])
@pytest.mark.parametrize("size_px", [12, 32])
def test_a_crop_is_within_one_level(box: tuple[int, int, int, int], size_px: int) -> None:
    image = pixels()
    ours = crop(image, np.array([box]), size_px)
    theirs = functional.resized_crop(as_pil(image), *box, [size_px, size_px])
    assert levels_apart(ours, theirs).max() < 1.01


def test_padding_around_an_image_does_not_reach_its_crop() -> None:
    image = pixels()
    padded = torch.zeros(1, 3, 60, 70, dtype=torch.uint8)
    padded[:, :, :40, :50] = image
    box = np.array([[0, 0, 40, 50]])
    assert torch.equal(crop(image, box, 24), crop(padded, box, 24))


def test_each_image_of_a_batch_gets_its_own_numbers() -> None:
    recipe = ViewRecipe(size_px=16)
    colors = draw_colors(recipe, np.random.default_rng(0).random((30, NUM_UNIFORMS)))
    images = torch.rand(30, 3, 16, 16)
    together = finish(images.clone(), colors, recipe)
    for place in (0, 7, 29):
        one = slice(place, place + 1)
        alone = type(colors)(*(values[one] for values in vars(colors).values()))
        torch.testing.assert_close(finish(images[one].clone(), alone, recipe), together[one])


def test_without_any_chance_views_are_only_normalized() -> None:
    recipe = ViewRecipe(
        jitter_probability=0, gray_probability=0, blur_probability=0, flip_probability=0
    )
    colors = draw_colors(recipe, np.random.default_rng(0).random((4, NUM_UNIFORMS)))
    images = torch.rand(4, 3, 8, 8)
    expected = functional.normalize(images, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(finish(images.clone(), colors, recipe), expected)
