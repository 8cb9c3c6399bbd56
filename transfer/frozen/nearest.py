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


class Nearest:
    """The k nearest rows of a bank that arrives in blocks, for queries (n, C).

    Ties go to the row that came first, so that the size of a block changes no neighbor.
    """

    def __init__(self, queries: Tensor, num_neighbors: int) -> None:
        self.queries, self.num_neighbors, self.num_rows = queries, num_neighbors, 0
        self.similarities = queries.new_zeros(len(queries), 0)
        """Inner products (n, k) with the nearest rows so far, nearest first; fewer at the start."""
        self.indices = torch.zeros(len(queries), 0, dtype=torch.int64)

    def add(self, block: Tensor) -> None:
        """Compare all queries with the next rows (b, C) of the bank."""
        rows, parts = block.to(device()), []
        for start in range(0, len(self.queries), QUERIES_PER_PART):
            part = slice(start, start + QUERIES_PER_PART)
            similarities, indices = largest(
                self.queries[part].to(rows.device) @ rows.T, self.num_neighbors
            )
            both = torch.cat([self.similarities[part].to(rows.device), similarities], dim=1)
            places = torch.cat([self.indices[part], indices.cpu() + self.num_rows], dim=1)
            order = both.sort(dim=1, descending=True, stable=True).indices[:, : self.num_neighbors]
            parts.append((both.gather(1, order).cpu(), places.gather(1, order.cpu())))
        self.similarities, self.indices = map(torch.cat, zip(*parts, strict=True))
        self.num_rows += len(block)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values (n, k) of each row (n, m) and their columns, ties by column."""
    count = min(count, values.shape[1])
    found, columns = values.topk(min(count + 1, values.shape[1]))
    if found.shape[1] > count:  # topk leaves open which of equal values it takes
        tied = found[:, count] == found[:, count - 1]
        if tied.any():
            order = values[tied].sort(dim=1, descending=True, stable=True).indices
            columns[tied] = order[:, : count + 1]
    columns = columns[:, :count].sort(dim=1).values
    order = values.gather(1, columns).sort(dim=1, descending=True, stable=True).indices
    columns = columns.gather(1, order)
    return values.gather(1, columns), columns
