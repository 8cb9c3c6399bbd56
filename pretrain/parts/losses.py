"""Building blocks of losses: negative cosine, feature correlations, entropies, InfoNCE.

Negative cosine: Chen & He, CVPR 2021, arXiv:2011.10566.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.parts.queue import queue_logsumexp_and_largest


def at_least_float32(rows: Tensor) -> Tensor:
    """Convert a tensor to float32, but keep float64.

    Variances and products of bfloat16 numbers would be mostly rounding errors.
    """
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def off_diagonal_squares(first: Tensor, second: Tensor) -> Tensor:
    """Return the sum of squared off-diagonal entries of first' second.

    first, second (N, D).
    """
    num_rows, dim = first.shape
    if dim > num_rows:
        # |A' B|^2 is the inner product of AA' and BB', which needs N x N matrices instead of a D x
        # D one
        total = ((first @ first.T) * (second @ second.T)).sum()
    else:
        total = (first.T @ second).square().sum()
    return total - (first * second).sum(dim=0).square().sum()


def negative_cosine(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean negative cosine (eq. 1): -1 (equal directions) to 1.

    prediction (n, d), target (n, d), of any length. Computed in float32, also under autocast. The
    target gets no gradient.
    """
    with torch.autocast(prediction.device.type, enabled=False):
        unit_prediction = normalize(at_least_float32(prediction), dim=1)
        unit_target = normalize(at_least_float32(target.detach()), dim=1)
        return -(unit_prediction * unit_target).sum(dim=1).mean()


def embedding_spread(embeddings: Tensor) -> Tensor:
    """Return the mean standard deviation of the coordinates of normalized rows.

    embeddings (n, d). The result is multiplied by sqrt(d), so that it is about 1 for uniformly
    distributed directions and 0 after a collapse (figure 2). It has no gradient.
    """
    unit = normalize(embeddings.detach().float(), dim=1)
    spread: Tensor = unit.std(dim=0).mean() * math.sqrt(unit.shape[1])
    return spread


def cross_view_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of views with other views' targets.

    logits (V, n, K); targets (A, n, K) of the first A views, rows sum to 1. In nats, averaged over
    images and over pairs of different views. Computed in float32, also under autocast.
    """
    log_probabilities = logits.float().log_softmax(dim=2)
    # a sum of products: autocast would round a matrix product to bfloat16
    entropies = [
        -(target * log_probabilities[v]).sum(dim=1).mean()
        for a, target in enumerate(targets.float())
        for v in range(len(logits))
        if v != a
    ]
    return torch.stack(entropies).mean()


def instance_discrimination(
    query: Tensor, key: Tensor, queue: Tensor, *, temperature: float, label_smoothing: float = 0.0
) -> dict[str, Tensor]:
    """Return InfoNCE of queries with keys and a queue, in nats.

    query (n, d), key (n, d), queue (K, d), rows of unit length. The loss is averaged over the
    batch, and computed in float32, also under autocast. The queue gets no gradient. InfoNCE without
    label smoothing, and the top-1 accuracy in percent among K + 1 keys, are returned for the log.

    Label smoothing e sets the target to 1 - e for the key, and to e / K for each key of the queue.
    Szegedy et al., arXiv:1512.00567, spread e over all classes; here, only negatives get a part of
    it.
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
