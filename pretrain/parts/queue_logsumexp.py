"""Log-sum-exp of similarities to a long queue without keeping the similarities."""

from typing import Any

import torch
from torch import Tensor

BLOCK_KEYS = 4096


def queue_logsumexp(query: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """log sum_j exp(query . queue_j / temperature), in nats: (n, d), (K, d) -> (n,), float32.

    The queue is read in blocks of keys with a running maximum, and the gradient to the query
    (exact; the queue gets none) is formed on the way: memory is n * BLOCK_KEYS, not n * K.
    """
    with torch.autocast(query.device.type, enabled=False):
        result: Tensor = _QueueLogSumExp.apply(query.float(), queue.float(), temperature)
    return result


class _QueueLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, queue: Tensor, temperature: float) -> Tensor:
        scaled = query / temperature
        largest = query.new_full((len(query), 1), -torch.inf)
        total = query.new_zeros((len(query), 1))
        mean_key = torch.zeros_like(query)  # of the softmax, times `total` until the end
        needs_gradient = ctx.needs_input_grad[0]
        for keys in queue.split(BLOCK_KEYS):
            logits = scaled @ keys.T
            new_largest = torch.maximum(largest, logits.amax(dim=1, keepdim=True))
            shrink = (largest - new_largest).exp_()
            weights = logits.sub_(new_largest).exp_()
            total = total * shrink + weights.sum(dim=1, keepdim=True)
            if needs_gradient:
                mean_key = torch.addmm(mean_key * shrink, weights, keys)
            largest = new_largest
        ctx.save_for_backward(mean_key / (total * temperature))
        return (largest + total.log()).squeeze(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (query_gradient,) = ctx.saved_tensors
        return gradient[:, None] * query_gradient, None, None
