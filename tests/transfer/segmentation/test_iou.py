"""Intersection over union: by hand, and against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import jaccard_score

from transfer.segmentation.iou import confusion, overlap


def test_a_case_by_hand() -> None:
    truth = np.array([[0, 0, 1, 1], [0, 0, 1, 255]], dtype=np.uint8)
    predicted = np.array([[0, 1, 1, 1], [0, 3, 0, 2]], dtype=np.uint8)
    result = overlap(confusion(predicted, truth, 4))
    assert result.classes == (40.0, 50.0, None, 0.0)  # a class that is only predicted counts as 0
    assert result.mean == pytest.approx(30)
    assert result.pixel_accuracy == pytest.approx(400 / 7)
    assert result.mean_accuracy == pytest.approx((50 + 200 / 3) / 2)


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
    stored = truth != 255
    expected = 100 * jaccard_score(truth[stored], guess[stored], average=None, labels=range(5))
    assert overlap(np.asarray(counts)).classes == pytest.approx(tuple(expected))
