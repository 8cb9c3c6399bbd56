"""LORAC's protocol: numbers, learning rate selection, and one test evaluation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transfer.frozen.linear_heads
from pretrain.running.errors import NotFiniteError
from transfer.datasets.folders import Folders
from transfer.datasets.images import ImageArrays, Images
from transfer.encoders.encoder import Encoder
from transfer.frozen.classifier import Heads
from transfer.frozen.feature_cache import Features
from transfer.tasks.linear_transfer import LinearTransfer
from transfer.tasks.task import TrainingData

TASK = LinearTransfer(dataset="dtd", steps=10, learning_rates=(0.1, 1.0, 10.0))


def heads_scoring(right: list[int]) -> Heads:
    """A head per entry.

    On the features eye(5) with labels 0..4 it gets so many right.
    """
    answers = [[i if i < correct else (i + 1) % 5 for i in range(5)] for correct in right]
    weight = torch.eye(5)[torch.tensor(answers)].transpose(1, 2)
    return Heads(weight.contiguous(), torch.zeros(len(right), 5))


EYE = Features(torch.eye(5), torch.arange(5))
TRAIN, TRAINVAL = (
    Images(ImageArrays(np.zeros((5, 1, 1, 3), np.uint8), names), np.arange(5), "abcde")
    for names in (np.array([b""] * 5),) * 2
)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, tuple[float, ...]]]:
    """Replaces training: (images, rates) of each call.

    The middle of three rates is the best.
    """
    calls: list[tuple[object, tuple[float, ...]]] = []

    class Trained:
        def __init__(self, backbone: Encoder, images: Images, *rest: Any) -> None:
            self.images, self.training = images, rest[0]
            self.heads = heads_scoring([2, 4, 3] if len(rest[0].learning_rates) == 3 else [5])

        def run(self) -> Heads:
            calls.append((self.images, self.training.learning_rates))
            return self.heads

    monkeypatch.setattr(transfer.frozen.linear_heads, "Pass", Trained)
    return calls


def test_best_learning_rate_is_trained_on_train_and_val(
    trained: list[object], small_backbone: Encoder, tmp_path: Path
) -> None:
    held_out = TrainingData(small_backbone, TRAIN, EYE)
    prepared = TrainingData(small_backbone, TRAINVAL, EYE, held_out)
    folders = Folders(tmp_path, tmp_path, tmp_path)
    predictions = TASK.run(prepared, folders, seed=0)
    result = {**TASK.metrics(predictions), **TASK.details(predictions)}
    assert trained == [(TRAIN, (0.1, 1.0, 10.0)), (TRAINVAL, (1.0,))]
    assert result["learning_rate"] == 1.0
    assert result["val_accuracy"] == {"0.1": 40.0, "1.0": 80.0, "10.0": 60.0}
    assert (result["top1"], result["at_grid_edge"]) == (100.0, False)
    assert result["accuracy_per_class"] == dict.fromkeys("abcde", 100.0)
    poisoned = Features(torch.full((5, 5), float("inf")), torch.arange(5))
    with pytest.raises(NotFiniteError, match="diverged at learning rate 1"):
        TASK.run(replace(prepared, test=poisoned), folders, seed=0)


def test_a_diverged_head_is_never_chosen() -> None:
    heads = heads_scoring([1, 3])
    heads.weight[1, 0, 0] = float("nan")
    assert heads.accuracies(EYE) == [20.0, -1.0]


def test_a_class_that_a_mean_over_classes_lacks_is_named() -> None:
    lacking = {"val": TRAIN, "test": TRAIN.subset([0, 1, 3, 4])}
    reason = LinearTransfer(dataset="flowers", steps=10).too_few_labels(lacking)
    assert "flowers, test: class 'c' has 0" in reason
    assert TASK.too_few_labels(lacking) == ""  # top-1
