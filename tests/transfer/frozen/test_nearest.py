"""Nearest neighbors vote as a loop over all pairs says."""

import math

import pytest
import torch

from transfer.frozen.feature_cache import Features
from transfer.frozen.nearest import QUERIES_PER_PART, knn_scores, nearest_rows


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
    with pytest.raises(ValueError, match="of 3 images"):
        knn_scores(bank, torch.eye(3), num_classes=3, num_neighbors=4, temperature=0.1)
    with pytest.raises(ValueError, match="of 3 images"):
        nearest_rows(torch.eye(3), torch.eye(3), 4)


def test_queries_of_several_parts_vote_in_their_order() -> None:
    count = 2 * QUERIES_PER_PART + 5
    kinds = torch.arange(count) % 7
    bank = Features(torch.eye(7), torch.arange(7))
    votes = knn_scores(bank, torch.eye(7)[kinds], num_classes=7, num_neighbors=1, temperature=0.1)
    assert torch.equal(votes.argmax(dim=1), kinds)
