"""Nearest neighbors vote as a loop over all pairs says."""

import math

import pytest
import torch
from torch import Tensor

from transfer.frozen.feature_cache import Features
from transfer.frozen.nearest import QUERIES_PER_CHUNK, Nearest, knn_scores, nearest_rows


def test_votes_equal_a_loop_over_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(30, 4, generator=generator)
    labels = torch.randint(0, 3, (30,), generator=generator)
    queries = torch.randn(5, 4, generator=generator)
    votes = knn_scores(
        Features(bank, labels), queries, num_classes=3, num_neighbors=7, temperature=0.1
    )
    for query, row in zip(queries, votes, strict=True):
        cosines = [float(torch.cosine_similarity(query, key, dim=0)) for key in bank]
        nearest = sorted(range(30), key=lambda index: -cosines[index])[:7]
        for label in range(3):
            vote = sum(math.exp(cosines[i] / 0.1) for i in nearest if labels[i] == label)
            # cosines within some eps of float32, and the exponent multiplies them by 10
            assert float(row[label]) == pytest.approx(vote, rel=1e-5)


def test_more_neighbors_than_images_is_an_error() -> None:
    bank = Features(torch.eye(3), torch.arange(3))
    with pytest.raises(ValueError, match="has 3 images"):
        knn_scores(bank, torch.eye(3), num_classes=3, num_neighbors=4, temperature=0.1)
    with pytest.raises(ValueError, match="has 3 images"):
        nearest_rows(torch.eye(3), torch.eye(3), 4)


def test_queries_of_several_parts_vote_in_their_order() -> None:
    count = 2 * QUERIES_PER_CHUNK + 5
    kinds = torch.arange(count) % 7
    bank = Features(torch.eye(7), torch.arange(7))
    votes = knn_scores(bank, torch.eye(7)[kinds], num_classes=7, num_neighbors=1, temperature=0.1)
    assert torch.equal(votes.argmax(dim=1), kinds)


def plain_nearest(bank: Tensor, query: Tensor, count: int) -> list[tuple[float, int]]:
    """Return inner products and rows, by a loop.

    Equal products in the order of the rows.
    """
    products = [float(sum(a * b for a, b in zip(query, row, strict=True))) for row in bank]
    order = sorted(range(len(bank)), key=lambda i: (-products[i], i))[:count]
    return [(products[i], i) for i in order]


@pytest.mark.parametrize("block", [1, 3, 7, 50])
def test_nearest_of_blocks_equals_a_plain_loop_with_many_ties(block: int) -> None:
    generator = torch.Generator().manual_seed(0)
    # products of small whole numbers are exact in float32
    bank = torch.randint(-2, 3, (50, 3), generator=generator).float()
    queries = torch.randint(-2, 3, (9, 3), generator=generator).float()
    nearest = Nearest(queries, 6)
    for rows in bank.split(block):
        nearest.add(rows)
    for i, query in enumerate(queries):
        pairs = zip(nearest.similarities[i].tolist(), nearest.indices[i].tolist(), strict=True)
        assert list(pairs) == plain_nearest(bank, query, 6)


def test_nearest_of_blocks_agrees_with_float64_on_random_features() -> None:
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.randn(n, 16, generator=generator) for n in (200, 20))
    nearest = Nearest(queries, 30)
    for rows in bank.split(64):
        nearest.add(rows)
    exact = (queries.double() @ bank.double().T).topk(30)
    assert torch.equal(nearest.indices, exact.indices)
    assert torch.allclose(nearest.similarities.double(), exact.values, atol=1e-4)


def test_nearest_of_blocks_with_fewer_rows_than_neighbors_returns_all() -> None:
    nearest = Nearest(torch.eye(2), 5)
    nearest.add(torch.eye(2))
    assert nearest.indices.tolist() == [[0, 1], [1, 0]]
