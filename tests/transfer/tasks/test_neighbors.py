"""Queries of all classes that are the same for every backbone, and thumbnails that show them."""

from collections import Counter

import pytest
import torch

from transfer.frozen.nearest import nearest_rows
from transfer.tasks.neighbors import TASKS

LABELS = torch.arange(100) % 10


def test_two_queries_of_each_of_ten_classes_are_drawn_and_always_the_same() -> None:
    task = TASKS["cifar10_neighbors"]
    queries = task.draw_queries(LABELS)
    assert Counter(LABELS[queries].tolist()) == dict.fromkeys(range(10), 2)
    assert queries == task.draw_queries(LABELS)
    assert len(set(queries)) == 20


def test_of_more_classes_than_queries_each_gives_at_most_one() -> None:
    labels = torch.arange(400) % 100
    queries = TASKS["in100_neighbors"].draw_queries(labels)
    assert len(queries) == 12
    assert max(Counter(labels[queries].tolist()).values()) == 1


def test_neighbors_are_ordered_by_cosine_whatever_their_length() -> None:
    bank = torch.tensor([[5.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
    cosines, indices = nearest_rows(bank, torch.tensor([[2.0, 0.1]]), 3)
    assert indices.tolist() == [[0, 2, 1]]
    assert cosines[0, 0] == pytest.approx(2 / (4 + 0.01) ** 0.5)
