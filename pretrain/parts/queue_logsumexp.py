"""Log-sum-exp of similarities to a long queue, without a matrix of all similarities."""

from typing import Any

import torch
from torch import Tensor

BLOCK_KEYS = 4096
"""Keys of a block on a CPU, whose cache holds their logits, and at least on a GPU."""
BLOCK_LOGITS = 2**24
"""Logits of a block on a GPU, 64 MB: below that its kernels take less time than their start."""


def queue_logsumexp(query: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return log sum_j exp(query . queue_j / temperature) (n,), in nats, float32.

    query (n, d), queue (K, d). The queue is read in blocks with a running maximum, and the gradient
    to the query is computed in the same pass: memory is that of a block of logits, not n * K. The
    gradient is exact; the queue gets none.
    """
    return queue_logsumexp_and_largest(query, queue, temperature=temperature)[0]


def queue_logsumexp_and_largest(
    query: Tensor, queue: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return `queue_logsumexp` and max_j query . queue_j / temperature, (n,) each, float32.

    The maximum is known from the same pass and has no gradient.
    """
    with torch.autocast(query.device.type, enabled=False):
        logsumexp, largest = _QueueLogSumExp.apply(query.float(), queue.float(), temperature)
    return logsumexp, largest


def block_keys(num_queries: int, device: torch.device) -> int:
    """Return how many keys n queries are compared with at once, whatever the queue's length."""
    if device.type != "cuda":
        return BLOCK_KEYS
    return max(BLOCK_LOGITS // num_queries // BLOCK_KEYS, 1) * BLOCK_KEYS


class _QueueLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, queue: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        scaled = query / temperature
        largest = query.new_full((len(query), 1), -torch.inf)
        total = query.new_zeros((len(query), 1))
        mean_key = torch.zeros_like(query)  # of the softmax, times `total` until the end
        needs_gradient = ctx.needs_input_grad[0]
        for keys in queue.split(block_keys(len(query), query.device)):
            logits = scaled @ keys.T
            new_largest = torch.maximum(largest, logits.amax(dim=1, keepdim=True))
            shrink = (largest - new_largest).exp_()
            weights = logits.sub_(new_largest).exp_()
            total = total * shrink + weights.sum(dim=1, keepdim=True)
            if needs_gradient:
                mean_key = torch.addmm(mean_key * shrink, weights, keys)
            largest = new_largest
        ctx.save_for_backward(mean_key / (total * temperature))
        largest = largest.squeeze(1)
        ctx.mark_non_differentiable(largest)
        return largest + total.squeeze(1).log(), largest

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (query_gradient,) = ctx.saved_tensors
        return gradient[:, None] * query_gradient, None, None
