"""Weighted k-nearest-neighbor votes: Wu et al., CVPR 2018, arXiv:1805.01978."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from transfer.frozen.features import Features
from transfer.frozen.network import device

QUERIES_PER_PART = 512


def knn_scores(
    bank: Features, queries: Tensor, *, num_classes: int, num_neighbors: int, temperature: float
) -> Tensor:
    """Return votes (n, L) for queries (n, C): exp(cosine similarity / temperature) per neighbor.

    ValueError if the bank holds fewer than `num_neighbors` images.
    """
    if num_neighbors > len(bank.features):
        raise ValueError(
            f"{num_neighbors} neighbors are asked of a bank of {len(bank.features)} images"
        )
    where = device()
    keys = normalize(bank.features.to(where), dim=1)
    labels = bank.labels.to(where)
    parts = []
    for part in queries.split(QUERIES_PER_PART):
        similarity, nearest = (normalize(part.to(where), dim=1) @ keys.T).topk(num_neighbors)
        votes = similarity.new_zeros(len(part), num_classes)
        votes.scatter_add_(1, labels[nearest], (similarity / temperature).exp())
        parts.append(votes.cpu())
    return torch.cat(parts)
