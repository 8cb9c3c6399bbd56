"""Recognition of a query's key among a queue: He et al., CVPR 2020, arXiv:1911.05722, eq. 1."""

from typing import NamedTuple

import torch
from torch import Tensor

from pretrain.parts.queue import queue_logsumexp_and_largest


class Contrast(NamedTuple):
    """Means over a batch, scalars."""

    loss: Tensor
    """InfoNCE with smoothed labels, in nats."""
    info_nce: Tensor
    """InfoNCE with plain labels, in nats."""
    accuracy: Tensor
    """Top-1 accuracy of the choice among K + 1 keys, in percent; without gradient."""


def instance_discrimination(
    query: Tensor, key: Tensor, queue: Tensor, *, temperature: float, label_smoothing: float = 0.0
) -> Contrast:
    """Return InfoNCE and accuracy of queries against their key and a queue.

    query (n, d), key (n, d), queue (K, d); rows of unit length; float32, also under autocast. Only
    the query gets a gradient through the queue. Label smoothing e (Szegedy et al.,
    arXiv:1512.00567, but spread over the negatives only) sets the target to 1 - e on the key and
    e / K on each key of the queue.
    """
    query = query.float()
    positive = (query * key.float()).sum(dim=1) / temperature
    negative, largest = queue_logsumexp_and_largest(query, queue, temperature=temperature)
    expected = positive
    if label_smoothing > 0:
        # the mean of all negative logits is one product with the mean key
        mean_negative = (query * queue.float().mean(dim=0)).sum(dim=1) / temperature
        expected = torch.lerp(positive, mean_negative, label_smoothing)
    partition = torch.logaddexp(positive, negative)
    info_nce = (partition - positive).mean()
    return Contrast(
        loss=(partition - expected).mean() if label_smoothing > 0 else info_nce,
        info_nce=info_nce,
        accuracy=100 * (positive.detach() > largest).float().mean(),
    )
