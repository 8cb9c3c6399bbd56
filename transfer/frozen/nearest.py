"""Weighted kNN votes: Wu et al., CVPR 2018, arXiv:1805.01978."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from transfer.frozen.feature_cache import Features
from transfer.frozen.finite import FeatureError
from transfer.frozen.network import device

MAX_LOG = math.log(torch.finfo(torch.float32).max)
QUERIES_PER_CHUNK = 512  # their float32 similarities to ImageNet-1k take 2.6 GB


def knn_scores(
    bank: Features, queries: Tensor, *, num_classes: int, num_neighbors: int, temperature: float
) -> Tensor:
    """Return votes (n, L) for queries (n, C).

    Each neighbor votes with exp(cosine similarity / temperature). Raises FeatureError if the bank
    has fewer than `num_neighbors` images, or if the votes could exceed float32: with 200 neighbors,
    for temperatures below 0.012.
    """
    if not 0 < 1 / temperature < MAX_LOG - math.log(num_neighbors):
        raise FeatureError(
            f"temperature is {temperature:g}: expected a positive number for which the votes of "
            f"{num_neighbors} neighbors, up to exp(1 / temperature) each, fit into float32"
        )
    labels = bank.labels.to(device())
    chunks = []
    for similarity, nearest in _nearest_in_chunks(bank.features, queries, num_neighbors):
        votes = similarity.new_zeros(len(similarity), num_classes)
        votes.scatter_add_(1, labels[nearest], (similarity / temperature).exp())
        chunks.append(votes.cpu())
    return torch.cat(chunks)


def nearest_rows(bank: Tensor, queries: Tensor, num_neighbors: int) -> tuple[Tensor, Tensor]:
    """Return cosines and indices (n, k) of the nearest rows, nearest first.

    Raises FeatureError if the bank has fewer than k rows.
    """
    chunks = [
        (similarity.cpu(), nearest.cpu())
        for similarity, nearest in _nearest_in_chunks(bank, queries, num_neighbors)
    ]
    similarities, indices = zip(*chunks, strict=True)
    return torch.cat(similarities), torch.cat(indices)


def _nearest_in_chunks(
    bank: Tensor, queries: Tensor, num_neighbors: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield cosines and indices (q, k) for chunks of the queries."""
    if num_neighbors > len(bank):
        raise FeatureError(
            f"{num_neighbors} neighbors are requested, but the bank has {len(bank)} images. "
            "Use the complete dataset, or --schedule smoke for fewer neighbors"
        )
    target_device = device()
    keys = normalize(bank.to(target_device), dim=1)
    for chunk in queries.split(QUERIES_PER_CHUNK):
        similarities = normalize(chunk.to(target_device), dim=1) @ keys.T
        yield similarities.topk(num_neighbors)


class Nearest:
    """The k nearest rows of a bank that is added in blocks.

    Ties go to the earlier row, so the block size changes no neighbor.
    """

    def __init__(self, queries: Tensor, num_neighbors: int) -> None:
        self.queries, self.num_neighbors, self.num_rows = queries, num_neighbors, 0
        self.similarities = queries.new_zeros(len(queries), 0)
        """Inner products (n, k) with the nearest rows so far, nearest first."""
        self.indices = torch.zeros(len(queries), 0, dtype=torch.int64)

    def add(self, block: Tensor) -> None:
        """Add the next rows (b, C) of the bank."""
        rows, results = block.to(device()), []
        for start in range(0, len(self.queries), QUERIES_PER_CHUNK):
            chunk = slice(start, start + QUERIES_PER_CHUNK)
            similarities, indices = largest(
                self.queries[chunk].to(rows.device) @ rows.T, self.num_neighbors
            )
            candidates = torch.cat([self.similarities[chunk].to(rows.device), similarities], dim=1)
            candidate_indices = torch.cat(
                [self.indices[chunk], indices.cpu() + self.num_rows], dim=1
            )
            order = candidates.sort(dim=1, descending=True, stable=True).indices
            order = order[:, : self.num_neighbors]
            nearest = candidates.gather(1, order).cpu(), candidate_indices.gather(1, order.cpu())
            results.append(nearest)
        self.similarities, self.indices = map(torch.cat, zip(*results, strict=True))
        self.num_rows += len(block)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values (n, k) of each row and their columns.

    Ties go to the smaller column.
    """
    count = min(count, values.shape[1])
    top, columns = values.topk(min(count + 1, values.shape[1]))
    if top.shape[1] > count:  # topk does not define which of equal values it returns
        tied = top[:, count] == top[:, count - 1]
        if tied.any():
            order = values[tied].sort(dim=1, descending=True, stable=True).indices
            columns[tied] = order[:, : count + 1]
    columns = columns[:, :count].sort(dim=1).values
    order = values.gather(1, columns).sort(dim=1, descending=True, stable=True).indices
    columns = columns.gather(1, order)
    return values.gather(1, columns), columns
