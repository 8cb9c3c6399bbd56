"""Metrics in percent: pure functions of scores and labels on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Points = Literal["area", "11"]
"""Summary of the precision-recall curve.

"area": area under the curve over all points. "11": mean precision at 11 recalls.
"""

RECALL_STEPS = 10
"""The 11 points of VOC2007 are recalls 0/10, 1/10, ..., 10/10."""


def top1(scores: Tensor, labels: Tensor) -> float:
    """Return the top-1 accuracy in percent.

    scores (n, L), labels (n,) of 0..L-1. Among equal best scores the lowest class counts.
    """
    check_classification(scores, labels)
    return percent(scores.argmax(dim=1) == labels)


def topk(scores: Tensor, labels: Tensor, *, k: int) -> float:
    """Return the top-k accuracy in percent.

    scores (n, L), labels (n,). Equal scores rank by class index; k = 1 is `top1`, k = L is 100.
    """
    import torch

    check_classification(scores, labels)
    if not 1 <= k <= scores.shape[1]:
        raise ValueError(f"k is {k}; expected 1 to {scores.shape[1]}, the classes of the scores")
    label_scores = scores.gather(1, labels[:, None])
    has_lower_index = torch.arange(scores.shape[1]) < labels[:, None]
    rank = ((scores > label_scores) | ((scores == label_scores) & has_lower_index)).sum(dim=1)
    return percent(rank < k)


def mean_per_class(scores: Tensor, labels: Tensor) -> float:
    """Return the mean per-class accuracy over the L classes, in percent.

    scores (n, L), labels (n,). Every class needs an image: a mean over fewer classes is another
    metric.
    """
    import torch

    check_classification(scores, labels)
    num_classes = scores.shape[1]
    images = torch.bincount(labels, minlength=num_classes)
    missing = (images == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(
            f"{len(missing)} of {num_classes} classes have no image, first {missing[0]}: no mean "
            "per class; check the split"
        )
    correct = labels[scores.argmax(dim=1) == labels]
    hits = torch.bincount(correct, minlength=num_classes)
    return 100 * float((hits.double() / images).mean())


def average_precision(scores: Tensor, positive: Tensor, *, points: Points) -> float:
    """Return the average precision of one class, in percent.

    scores (n,), positive (n,) bool. Precision is interpolated: at each recall it is the highest
    precision at this or a higher recall. "area" is the area under that curve over all points (VOC
    2010 and later); "11" is its mean at recalls 0, 0.1, ..., 1 (VOC 2007). Images with equal scores
    enter the curve together, so that their order does not matter; constant scores give the fraction
    of positives.
    """
    import torch

    check_scores(scores)
    if positive.shape != scores.shape or positive.dtype != torch.bool:
        raise ValueError(f"positive is {positive}; expected bool of the scores' shape")
    num_positive = int(positive.sum())
    if num_positive == 0:
        raise ValueError(f"no positive among {len(positive)} images: no average precision")
    _, group = torch.unique(scores, return_inverse=True)
    images = torch.bincount(group)
    hits = torch.bincount(group[positive], minlength=len(images))
    # positives and images at or above each distinct score, highest first
    hits, num_ranked = hits.flip(0).cumsum(0), images.flip(0).cumsum(0)
    envelope = (hits.double() / num_ranked).flip(0).cummax(dim=0).values.flip(0)
    if points == "area":
        steps = hits.diff(prepend=hits.new_zeros(1))
        return 100 * float((steps * envelope).sum() / num_positive)
    # integers are compared to find the threshold that reaches a recall: in floats, 0.1 * 30 > 3
    reached = torch.searchsorted(hits * RECALL_STEPS, torch.arange(RECALL_STEPS + 1) * num_positive)
    return 100 * float(envelope[reached].mean())


def percent(correct: Tensor) -> float:
    """Return the percentage of true entries in a bool tensor (n,)."""
    return 100 * int(correct.sum()) / len(correct)


def check_scores(scores: Tensor) -> None:
    """Raise ValueError for an empty tensor of scores or a NaN."""
    if scores.shape[0] == 0:
        raise ValueError("no image to score: check the split")
    if num_bad := int(scores.isnan().sum()):
        raise ValueError(f"{num_bad} of {scores.numel()} scores are NaN; no metric is computed")


def check_classification(scores: Tensor, labels: Tensor) -> None:
    """Raise ValueError unless scores (n, L) and labels (n,) fit together.

    Labels are integers of 0..L-1.
    """
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            f"scores are {tuple(scores.shape)} and labels {tuple(labels.shape)}; "
            "expected (n, L) and (n,)"
        )
    check_scores(scores)
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= scores.shape[1]:
        raise ValueError(f"labels reach from {low} to {high}; expected 0 to {scores.shape[1] - 1}")
