"""The numbers of a view against those that torchvision draws."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torchvision.transforms import RandomResizedCrop

from pretrain.views import NUM_UNIFORMS, Floats, ViewRecipe, draw_boxes, draw_colors, uniforms

MANY = 4000


def many_numbers() -> Floats:
    """(MANY, NUM_UNIFORMS)."""
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


def test_boxes_lie_inside_images_of_unequal_sizes() -> None:
    height = np.random.default_rng(1).integers(1, 300, MANY)
    width = np.random.default_rng(2).integers(1, 300, MANY)
    top, left, box_height, box_width = draw_boxes(ViewRecipe(), many_numbers(), height, width).T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (box_height > 0).all()
    assert (box_width > 0).all()
    assert (top + box_height <= height).all()
    assert (left + box_width <= width).all()


def test_an_image_that_no_box_fits_is_cut_in_the_middle() -> None:
    wide = draw_boxes(ViewRecipe(crop_area=(1.0, 1.0)), many_numbers()[:1], *np.array([[30], [90]]))
    assert wide.tolist() == [[0, 25, 30, 40]]


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


def test_draws_of_one_image_are_independent() -> None:
    correlation = np.corrcoef(many_numbers(), rowvar=False)
    streams = np.concatenate([uniforms(3, 1, index, 2) for index in range(MANY // 2)])
    assert np.abs(np.corrcoef(streams, rowvar=False) - np.eye(NUM_UNIFORMS)).max() < 0.08
    assert np.abs(correlation - np.eye(NUM_UNIFORMS)).max() < 0.08


def test_numbers_depend_on_seed_epoch_and_image_and_on_nothing_else() -> None:
    first = uniforms(1, 2, 3, 4)
    np.random.default_rng().random(7)
    assert np.array_equal(first, uniforms(1, 2, 3, 4))
    for other in (uniforms(0, 2, 3, 4), uniforms(1, 0, 3, 4), uniforms(1, 2, 0, 4)):
        assert not np.isin(first, other).any()
