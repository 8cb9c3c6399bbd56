"""Weighted k-nearest-neighbor votes: Wu et al., CVPR 2018, arXiv:1805.01978."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from transfer.frozen.feature_cache import Features
from transfer.frozen.network import device

MAX_LOG = math.log(torch.finfo(torch.float32).max)
QUERIES_PER_PART = 512  # their float32 cosines with all of ImageNet-1k take 2.6 GB


def knn_scores(
    bank: Features, queries: Tensor, *, num_classes: int, num_neighbors: int, temperature: float
) -> Tensor:
    """Return votes (n, L) for queries (n, C): exp(cosine similarity / temperature) per neighbor.

    ValueError if the bank holds fewer than `num_neighbors` images, or if the votes of as many equal
    images exceed float32: at 200 neighbors, for temperatures below 0.012.
    """
    if not 0 < 1 / temperature < MAX_LOG - math.log(num_neighbors):
        raise ValueError(
            f"temperature is {temperature:g}: expected a number whose votes, up to exp(1 / "
            f"temperature) for each of {num_neighbors} neighbors, fit into float32"
        )
    labels = bank.labels.to(device())
    parts = []
    for similarity, nearest in _nearest_parts(bank.features, queries, num_neighbors):
        votes = similarity.new_zeros(len(similarity), num_classes)
        votes.scatter_add_(1, labels[nearest], (similarity / temperature).exp())
        parts.append(votes.cpu())
    return torch.cat(parts)


def nearest_rows(bank: Tensor, queries: Tensor, num_neighbors: int) -> tuple[Tensor, Tensor]:
    """Return cosines and indices (n, k) of each query's nearest rows of a bank, nearest first.

    ValueError if the bank has fewer than k rows.
    """
    parts = [
        (similarity.cpu(), nearest.cpu())
        for similarity, nearest in _nearest_parts(bank, queries, num_neighbors)
    ]
    similarities, indices = zip(*parts, strict=True)
    return torch.cat(similarities), torch.cat(indices)


def _nearest_parts(
    bank: Tensor, queries: Tensor, num_neighbors: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield cosines and indices (q, k) for parts of the queries (n, C), on the device."""
    if num_neighbors > len(bank):
        raise ValueError(f"{num_neighbors} neighbors are asked of a bank of {len(bank)} images")
    where = device()
    keys = normalize(bank.to(where), dim=1)
    for part in queries.split(QUERIES_PER_PART):
        similarity, nearest = (normalize(part.to(where), dim=1) @ keys.T).topk(num_neighbors)
        yield similarity, nearest
