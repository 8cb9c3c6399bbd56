"""The report of the few-shot task."""

import math
from pathlib import Path
from statistics import stdev

import pytest
import torch
from torch.nn.functional import one_hot

from transfer.tasks import TASKS
from transfer.tasks.few_shot import FewShot, FewShotScores, interval95


def test_the_protocol_has_the_papers_numbers() -> None:
    task = TASKS["flowers102_fewshot"]
    assert isinstance(task, FewShot)
    numbers = (task.shots, task.trials, task.iterations, task.learning_rate, task.batch_size)
    assert numbers == ((5, 10), 10, 250, 0.03, 256)


def test_the_interval_is_that_of_a_mean_of_ten() -> None:
    values = [70.0, 71.0, 69.5, 70.2, 70.8, 69.9, 70.4, 70.1, 70.6, 69.7]
    assert interval95(values) == pytest.approx(1.96 * stdev(values) / math.sqrt(10))


def test_a_mean_over_trials_and_its_interval_have_one_name() -> None:
    labels = torch.arange(4)
    right = one_hot(labels, 4).float()
    half = torch.cat([right[:2], right[:2]])
    task = FewShot(dataset="flowers", shots=(5,))
    predictions = FewShotScores({5: torch.stack([right, half])}, labels)
    assert task.metrics(predictions) == {"acc_5shot": 75.0}
    details = task.details(predictions)
    assert details["trials"] == {"acc_5shot": [100.0, 50.0]}
    assert details["interval95"] == {"acc_5shot": pytest.approx(1.96 * stdev([100, 50]) / 2**0.5)}


def test_fewer_images_than_a_class_needs_are_refused(small_data: Path) -> None:
    assert FewShot(dataset="cifar10", shots=(5, 32)).too_few_images(small_data) == ""
    reason = FewShot(dataset="cifar10", shots=(5, 33)).too_few_images(small_data)
    assert "33 images of each class are drawn, but cifar10 has 192 training images of 6" in reason
