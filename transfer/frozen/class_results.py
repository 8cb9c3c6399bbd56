"""Accuracy of each class and the most confused pairs, for a record's details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MOST_PAIRS = 20


def class_results(scores: Tensor, labels: Tensor, names: Sequence[str]) -> dict[str, Any]:
    """Return the accuracy of each class that has images, in percent, and the most confused pairs.

    scores (n, L), labels (n,) of 0..L-1, names: L names. A pair counts the images of one class that
    were taken for another; pairs of equally many images stand in the order of the classes.
    """
    import torch

    if len(names) != scores.shape[1]:
        raise ValueError(f"{len(names)} names for {scores.shape[1]} classes")
    num_classes = len(names)
    predicted = scores.argmax(dim=1).cpu()
    counts = torch.bincount(labels.cpu() * num_classes + predicted, minlength=num_classes**2)
    table = counts.reshape(num_classes, num_classes)
    images, right = table.sum(dim=1).tolist(), table.diagonal().tolist()
    wrong = table.clone().fill_diagonal_(0).flatten()
    places = torch.sort(wrong, descending=True, stable=True).indices[:MOST_PAIRS].tolist()
    return {
        "accuracy_per_class": {
            name: round(100 * hits / total, 2)
            for name, hits, total in zip(names, right, images, strict=True)
            if total
        },
        "most_confused": [
            {
                "class": names[place // num_classes],
                "taken_for": names[place % num_classes],
                "images": int(wrong[place]),
                "of": images[place // num_classes],
            }
            for place in places
            if wrong[place]
        ],
    }
