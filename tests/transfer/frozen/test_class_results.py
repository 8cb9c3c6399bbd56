"""Accuracy by class and confused pairs."""

import pytest
import torch

from transfer.frozen.classifier import class_results
from transfer.metrics import mean_per_class

NAMES = ("cat", "dog", "fox")


def test_pairs_are_counted_from_the_label_to_the_prediction() -> None:
    scores = torch.eye(3)[[0, 1, 1, 1, 2, 0]]
    labels = torch.tensor([0, 0, 0, 1, 2, 2])
    found = class_results(scores, labels, NAMES)
    assert found["most_confused"] == [
        {"class": "cat", "taken_for": "dog", "images": 2, "of": 3},
        {"class": "fox", "taken_for": "cat", "images": 1, "of": 2},
    ]


def test_the_accuracies_average_to_the_mean_per_class() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(300, 3, generator=generator)
    labels = torch.arange(300) % 3
    found = class_results(scores, labels, NAMES)["accuracy_per_class"]
    assert sum(found.values()) / 3 == pytest.approx(mean_per_class(scores, labels), abs=0.01)


def test_a_class_without_images_has_no_accuracy() -> None:
    found = class_results(torch.eye(3), torch.tensor([0, 1, 1]), NAMES)
    assert list(found["accuracy_per_class"]) == ["cat", "dog"]
