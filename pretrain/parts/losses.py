"""Parts of losses: data type, negative cosine, correlation of features, entropies, InfoNCE.

Negative cosine: Chen & He, CVPR 2021, arXiv:2011.10566.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.parts.queue import queue_logsumexp_and_largest


def at_least_float32(rows: Tensor) -> Tensor:
    """Return rows of any shape in float32, or in float64 if they have it.

    Variances and products of bfloat16 numbers would be mostly rounding errors.
    """
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def off_diagonal_squares(first: Tensor, second: Tensor) -> Tensor:
    """Return the sum of squares off the diagonal of first' second, for (N, D) each: a scalar."""
    num_rows, dim = first.shape
    if dim > num_rows:
        # |A' B|^2 is the inner product of AA' and BB': N x N matrices in place of a D x D one
        total = ((first @ first.T) * (second @ second.T)).sum()
    else:
        total = (first.T @ second).square().sum()
    return total - (first * second).sum(dim=0).square().sum()


def negative_cosine(prediction: Tensor, target: Tensor) -> Tensor:
    """Return eq. 1, mean over the batch: from -1, the same direction, to 1.

    prediction (n, d), target (n, d), of any length; float32, also under autocast. The target gets
    no gradient.
    """
    with torch.autocast(prediction.device.type, enabled=False):
        unit_prediction = normalize(at_least_float32(prediction), dim=1)
        unit_target = normalize(at_least_float32(target.detach()), dim=1)
        return -(unit_prediction * unit_target).sum(dim=1).mean()


def embedding_spread(embeddings: Tensor) -> Tensor:
    """Return the mean standard deviation of the coordinates of rows (n, d) scaled to length 1.

    It is multiplied by sqrt(d): about 1 where directions are uniform, 0 after a collapse (figure
    2). Without gradient.
    """
    unit = normalize(embeddings.detach().float(), dim=1)
    spread: Tensor = unit.std(dim=0).mean() * math.sqrt(unit.shape[1])
    return spread


def cross_view_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of each view's logits with the targets of every other view.

    logits (V, n, K); targets (A, n, K) of the first A views, rows that sum to 1. Mean over images
    and over pairs of different views, in nats; float32, also under autocast.
    """
    log_shares = logits.float().log_softmax(dim=2)
    # a sum of products: autocast would round a matrix product to bfloat16
    entropies = [
        -(target * log_shares[v]).sum(dim=1).mean()
        for a, target in enumerate(targets.float())
        for v in range(len(logits))
        if v != a
    ]
    return torch.stack(entropies).mean()


def instance_discrimination(
    query: Tensor, key: Tensor, queue: Tensor, *, temperature: float, label_smoothing: float = 0.0
) -> dict[str, Tensor]:
    """Return InfoNCE of queries against their key and a queue, mean over the batch, in nats.

    With the loss come InfoNCE with plain labels, and the top-1 accuracy of the choice among K + 1
    keys in percent, to be logged.

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
    return {
        "loss": (partition - expected).mean() if label_smoothing > 0 else info_nce,
        "instance_discrimination": info_nce.detach(),
        "instance_accuracy": 100 * (positive.detach() > largest).float().mean(),
    }
