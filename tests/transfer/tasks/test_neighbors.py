"""Queries and thumbnails are equal for every backbone."""

from collections import Counter

import pytest
import torch

from transfer.frozen.nearest import nearest_rows
from transfer.tasks.neighbors import TASKS


def test_sampled_queries_are_balanced() -> None:
    for key, classes, queries, of_each in (
        ("cifar10_neighbors", 10, 20, 2),
        ("in100_neighbors", 100, 12, 1),
        ("inat1k_neighbors", 1010, 12, 1),
    ):
        labels = torch.arange(4 * classes) % classes
        sampled = TASKS[key].draw_queries(labels)
        assert len(set(sampled)) == queries
        assert set(Counter(labels[sampled].tolist()).values()) == {of_each}
        assert sampled == TASKS[key].draw_queries(labels)


def test_neighbors_are_ordered_by_cosine_whatever_their_length() -> None:
    bank = torch.tensor([[5.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
    cosines, indices = nearest_rows(bank, torch.tensor([[2.0, 0.1]]), 3)
    assert indices.tolist() == [[0, 2, 1]]
    assert cosines[0, 0] == pytest.approx(2 / (4 + 0.01) ** 0.5)
