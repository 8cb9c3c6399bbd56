"""The data types of tasks on frozen features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Features:
    """Features and labels of one split, in the order of its images."""

    features: Tensor
    """(n, C) float32, memory-mapped from the cache."""
    labels: Tensor
    """(n,), or (n, L) for images with several labels."""


@dataclass(frozen=True)
class Predictions:
    """The predictions that a task's metrics are computed from, and details for the record."""

    scores: Tensor
    """(n, L) of the test split."""
    labels: Tensor
    """(n,) or (n, L)."""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainAndTest:
    """Features of training and test images, for a classifier without random crops."""

    train: Features
    test: Features
    num_classes: int
