"""Votes of small banks: what the record tells of classes, and the pictures."""

from pathlib import Path
from statistics import fmean

import pytest
import torch

from transfer.datasets.catalog import open_split
from transfer.frozen.features import Features, TrainAndTest
from transfer.metrics import top1
from transfer.running.folders import Folders
from transfer.tasks.low_shot_knn import LowShotKNN, LowShotVotes

TASK = LowShotKNN(dataset="cifar10", percents=(10, 5), draws=3, num_neighbors=4)


@pytest.fixture
def folders(small_data: Path, tmp_path: Path) -> Folders:
    return Folders(small_data, tmp_path, tmp_path)


@pytest.fixture
def votes(small_data: Path, folders: Folders) -> LowShotVotes:
    """Votes on random features of the small CIFAR-10."""
    generator = torch.Generator().manual_seed(0)
    labels = open_split("cifar10", small_data, "test").labels
    train = Features(torch.randn(120, 4, generator=generator), torch.arange(120) % 6)
    test = Features(torch.randn(len(labels), 4, generator=generator), labels)
    return TASK.run(TrainAndTest(train, test, 6), folders, seed=0)


def test_accuracy_by_class_is_the_mean_over_the_smallest_banks(
    votes: LowShotVotes, small_data: Path
) -> None:
    details = TASK.details(votes)
    found = details["accuracy_per_class"]
    assert isinstance(found, dict)
    for label, name in enumerate(open_split("cifar10", small_data, "test").class_names):
        own = votes.labels == label
        banks = [top1(bank[own], votes.labels[own]) for bank in votes.votes["5pct"]]
        assert found[name] == pytest.approx(fmean(banks), abs=0.005)
    assert details["classes_counted_over"] == "3 banks of 5 % of the training images"


def test_the_worst_image_has_the_largest_mean_lead_in_shares_of_the_votes(
    votes: LowShotVotes, folders: Folders, small_data: Path
) -> None:
    images = open_split("cifar10", small_data, "test")

    def lead(i: int) -> float:
        banks = [bank[i].tolist() for bank in votes.votes["5pct"]]
        shares = [fmean(bank[c] / sum(bank) for bank in banks) for c in range(6)]
        return max(shares) - shares[int(images.labels[i])]

    worst = max(range(len(images)), key=lead)
    assert TASK.gallery(votes, folders)[0].name == images.name(worst)
