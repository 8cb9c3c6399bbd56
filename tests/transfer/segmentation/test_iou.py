"""Intersection over union: by hand, and against scikit-learn."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import jaccard_score

from transfer.segmentation.iou import confusion, overlap

Mask = NDArray[np.uint8]


def test_a_case_by_hand() -> None:
    truth = np.array([[0, 0, 1, 1], [0, 0, 1, 255]], dtype=np.uint8)
    predicted = np.array([[0, 1, 1, 1], [0, 0, 0, 2]], dtype=np.uint8)
    found = overlap(confusion(predicted, truth, 4))
    assert found.classes == (60.0, 50.0, None, None)
    assert found.mean == pytest.approx(55)
    assert found.pixel_accuracy == pytest.approx(500 / 7)
    assert found.mean_accuracy == pytest.approx((75 + 200 / 3) / 2)


def test_a_class_that_is_only_predicted_counts_as_0() -> None:
    truth = np.zeros((1, 4), dtype=np.uint8)
    predicted = np.array([[0, 0, 0, 3]], dtype=np.uint8)
    found = overlap(confusion(predicted, truth, 4))
    assert found.classes == (75.0, None, None, 0.0)
    assert found.mean == pytest.approx(37.5)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_scikit_learns_over_the_pixels_of_all_images(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = [(7, 9), (5, 4), (8, 8)]
    truths = [random.integers(0, 5, size).astype(np.uint8) for size in sizes]
    for truth in truths:
        truth[random.random(truth.shape) < 0.2] = 255
    guesses = [random.integers(0, 5, size).astype(np.uint8) for size in sizes]
    counts = sum(confusion(g, t, 5) for g, t in zip(guesses, truths, strict=True))
    truth, guess = (np.concatenate([m.ravel() for m in masks]) for masks in (truths, guesses))
    kept = truth != 255
    expected = 100 * jaccard_score(truth[kept], guess[kept], average=None, labels=range(5))
    assert overlap(np.asarray(counts)).classes == pytest.approx(tuple(expected))


def test_sizes_classes_and_masks_that_cannot_be_scored_are_refused() -> None:
    def filled(value: int, shape: tuple[int, int] = (2, 2)) -> Mask:
        return np.full(shape, value, dtype=np.uint8)

    for predicted, truth, told in [
        (filled(0, (2, 3)), filled(0, (3, 2)), "size of the original image"),
        (filled(22), filled(0), "class 22; expected 0 to 20"),
        (filled(0), filled(21), "class 21; expected 0 to 20"),
        (filled(255), filled(1), "class 255; expected 0 to 20"),
        (filled(255), filled(255), "no pixel to score"),
    ]:
        with pytest.raises(ValueError, match=told):
            overlap(confusion(predicted, truth, 21))
