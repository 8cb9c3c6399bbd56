"""Metrics against slow loops, closed forms and scikit-learn where the definitions agree."""

import itertools

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, top_k_accuracy_score
from torch import Tensor

from transfer.metrics import Points, average_precision, mean_per_class, top1, topk

BOTH: list[Points] = ["area", "11"]


def classification(seed: int, num_classes: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (200,), generator=generator)
    labels[:num_classes] = torch.arange(num_classes)
    scores = torch.randn(200, num_classes, generator=generator)
    scores[torch.arange(200), labels] += 0.8
    return scores, labels


def ranking(seed: int, *, levels: int | None = None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    positive = torch.rand(60, generator=generator) < 0.3
    scores = torch.rand(60, generator=generator) + 0.3 * positive
    if levels is not None:
        scores = (scores * levels).floor() / levels
    return scores, positive


def precision_and_recall(scores: Tensor, positive: Tensor) -> list[tuple[float, float]]:
    """Threshold by threshold, as the definition reads."""
    points = []
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = [
            p for s, p in zip(scores.tolist(), positive.tolist(), strict=True) if s >= threshold
        ]
        points.append((sum(chosen) / len(chosen), sum(chosen) / int(positive.sum())))
    return points


def brute_force(scores: Tensor, positive: Tensor, points: Points) -> float:
    curve = precision_and_recall(scores, positive)

    def best(recall: float) -> float:
        return max(p for p, r in curve if r >= recall - 1e-9)

    if points == "11":
        return 100 * sum(best(i / 10) for i in range(11)) / 11
    recalls = [0.0, *(r for _, r in curve)]
    return 100 * sum((high - low) * best(high) for low, high in itertools.pairwise(recalls))


@pytest.mark.parametrize("points", BOTH)
@pytest.mark.parametrize("levels", [None, 8, 2])
def test_average_precision_is_its_definition(points: Points, levels: int | None) -> None:
    for seed in range(10):
        scores, positive = ranking(seed, levels=levels)
        expected = brute_force(scores, positive, points)
        assert average_precision(scores, positive, points=points) == pytest.approx(expected)


@pytest.mark.parametrize("num_positive", [10, 30, 70, 110])
def test_eleven_points_meet_recalls_that_floats_miss(num_positive: int) -> None:
    positive = torch.ones(2 * num_positive, dtype=torch.bool)
    positive[1::2] = False  # every recall step has its own precision
    scores = -torch.arange(2 * num_positive).float()
    expected = brute_force(scores, positive, "11")
    assert average_precision(scores, positive, points="11") == pytest.approx(expected, rel=1e-12)


def test_scores_that_are_nan_are_an_error() -> None:
    scores, labels = classification(0)
    scores[4, 2] = float("nan")
    with pytest.raises(ValueError, match="1 of 1400 scores are NaN"):
        top1(scores, labels)


@pytest.mark.filterwarnings("ignore:'k'")
@pytest.mark.parametrize("k", [1, 2, 5, 7])
def test_topk_equals_scikit_learn(k: int) -> None:
    scores, labels = classification(1)
    expected = 100 * top_k_accuracy_score(labels.numpy(), scores.numpy(), k=k)
    assert topk(scores, labels, k=k) == pytest.approx(expected)


def test_top1_is_topk_of_one_even_with_ties() -> None:
    scores, labels = classification(2)
    tied = scores.round()
    assert top1(tied, labels) == topk(tied, labels, k=1)


def test_mean_per_class_is_the_balanced_accuracy() -> None:
    scores, labels = classification(3)
    expected = 100 * balanced_accuracy_score(labels.numpy(), scores.argmax(dim=1).numpy())
    assert mean_per_class(scores, labels) == pytest.approx(expected)


def test_a_class_without_image_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 of 3 classes have no image, first 1"):
        mean_per_class(torch.rand(2, 3), torch.tensor([0, 2]))
