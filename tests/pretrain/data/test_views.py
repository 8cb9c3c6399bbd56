"""The random numbers of a view against torchvision's."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torchvision.transforms import RandomResizedCrop

from pretrain.data.views import (
    COLUMNS,
    NUM_UNIFORMS,
    TEXTURE_KERNELS_PX,
    TEXTURE_STRENGTH,
    Floats,
    ViewRecipe,
    draw_boxes,
    draw_colors,
    draw_style,
    draw_view_numbers,
)
from pretrain.parts.view import View

MANY = 4000
PLAIN = (View(),) * 4


def many_numbers() -> Floats:
    """Uniform random numbers (MANY, NUM_UNIFORMS)."""
    return np.random.default_rng(0).random((MANY, NUM_UNIFORMS))


@pytest.mark.parametrize(("height", "width"), [(32, 32), (375, 500), (100, 400)])
def test_boxes_are_distributed_as_torchvisions(height: int, width: int) -> None:
    image = torch.zeros(3, height, width)
    torch.manual_seed(0)
    theirs = np.array(
        [RandomResizedCrop.get_params(image, [0.2, 1.0], [3 / 4, 4 / 3]) for _ in range(MANY)]
    )
    sizes = np.full(MANY, height), np.full(MANY, width)
    ours = draw_boxes(ViewRecipe(), many_numbers(), *sizes)
    for column in range(4):
        assert ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
    areas = [boxes[:, 2] * boxes[:, 3] for boxes in (ours, theirs)]
    assert ks_2samp(*areas).pvalue > 1e-3


def test_colors_have_the_recipes_probabilities_and_ranges() -> None:
    colors = draw_colors(ViewRecipe(), many_numbers())
    jittered = colors.jitter_order[:, 0] >= 0
    blurred = colors.blur_sigma_px > 0
    shares = [jittered.mean(), colors.gray.mean(), blurred.mean(), colors.flip.mean()]
    assert shares == pytest.approx([0.8, 0.2, 0.5, 0.5], abs=0.03)
    assert colors.blur_sigma_px[blurred].min() >= 0.1
    assert colors.blur_sigma_px[blurred].mean() == pytest.approx(1.05, abs=0.05)
    low, high = colors.jitter.min(axis=0), colors.jitter.max(axis=0)
    assert low == pytest.approx([0.6, 0.6, 0.6, -0.1], abs=0.002)
    assert high == pytest.approx([1.4, 1.4, 1.4, 0.1], abs=0.002)


def test_every_order_of_the_jitter_is_equally_likely() -> None:
    colors = draw_colors(ViewRecipe(jitter_probability=1.0), many_numbers())
    orders, counts = np.unique(colors.jitter_order, axis=0, return_counts=True)
    assert len(orders) == 24
    assert counts == pytest.approx(np.full(24, MANY / 24), abs=4.5 * np.sqrt(MANY / 24))


def test_random_numbers_depend_on_seed_epoch_and_image() -> None:
    first = draw_view_numbers(1, 2, 3, PLAIN)
    np.random.default_rng().random(7)
    assert np.array_equal(first, draw_view_numbers(1, 2, 3, PLAIN))
    for second in (
        draw_view_numbers(0, 2, 3, PLAIN),
        draw_view_numbers(1, 0, 3, PLAIN),
        draw_view_numbers(1, 2, 0, PLAIN),
    ):
        assert not np.isin(first, second).any()


def test_view_shares_only_the_copied_transforms_of_the_query(
    subtests: pytest.Subtests,
) -> None:
    for augmentation in list(COLUMNS):
        with subtests.test(augmentation=augmentation):
            query, key = draw_view_numbers(0, 0, 5, (View(), View(copies=(augmentation,))))
            copied = np.zeros(NUM_UNIFORMS, dtype=bool)
            copied[COLUMNS[augmentation]] = True
            assert np.array_equal(query == key, copied)


def test_what_a_view_goes_without_never_happens_even_at_probability_one() -> None:
    recipe = ViewRecipe(
        jitter_probability=1.0,
        gray_probability=1.0,
        blur_probability=1.0,
        flip_probability=1.0,
        rotation_probability=1.0,
        texture_probability=1.0,
    )
    bare = View(without=tuple(name for name in COLUMNS if name != "crop"))
    numbers = np.concatenate([draw_view_numbers(0, 0, index, (bare,)) for index in (1, 2)])
    colors = draw_colors(recipe, numbers)
    happens = (colors.gray, colors.flip, colors.blur_sigma_px, colors.quarter_turns)
    assert not any(values.any() for values in (*happens, colors.texture[:, 0]))
    assert (colors.jitter_order == -1).all()
    assert (draw_style(recipe, numbers, 3) == -1).all()


def test_a_view_goes_without_one_augmentation_alone() -> None:
    """Color means both jitter and grayscale."""
    recipe = ViewRecipe(jitter_probability=1.0, gray_probability=1.0)
    for view, is_colored in ((View(without=("color",)), False), (View(without=("blur",)), True)):
        colors = draw_colors(recipe, draw_view_numbers(0, 0, 1, (view,)))
        assert [bool(colors.gray), bool((colors.jitter_order >= 0).all())] == [is_colored] * 2


def test_boxes_of_extreme_aspect_are_central() -> None:
    """No crop of the whole area fits into such images, so the center is cropped to the aspect."""
    recipe = ViewRecipe(crop_area=(1.0, 1.0))
    sizes = np.array([90, 300]), np.array([300, 90])
    boxes = draw_boxes(recipe, many_numbers()[:2], *sizes)
    assert boxes.tolist() == [[0, 90, 90, 120], [90, 0, 120, 90]]


def test_rotations_have_equal_probability() -> None:
    quarter_turns = draw_colors(ViewRecipe(rotation_probability=0.5), many_numbers()).quarter_turns
    shares = np.bincount(quarter_turns, minlength=4) / MANY
    assert shares == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6], abs=0.03)


def test_kernels_of_textures_are_equally_likely() -> None:
    texture = draw_colors(ViewRecipe(texture_probability=1.0), many_numbers()).texture
    sizes, counts = np.unique(texture[:, 0], return_counts=True)
    assert sizes.tolist() == [*TEXTURE_KERNELS_PX]
    assert counts / MANY == pytest.approx(1 / len(sizes), abs=0.04)


def test_strength_of_a_texture_has_its_own_number() -> None:
    numbers = np.zeros((1, NUM_UNIFORMS))
    numbers[0, COLUMNS["texture"].start + 3] = 1.0
    texture = draw_colors(ViewRecipe(texture_probability=1.0), numbers).texture
    assert texture.tolist() == [[3.0, 0.0, TEXTURE_STRENGTH[1]]]
