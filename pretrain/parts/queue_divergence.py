"""KL divergence between two embeddings' softmaxes over a long queue, without their logits."""

from typing import Any

import torch
from torch import Tensor

from pretrain.parts.queue_logsumexp import block_keys


def queue_divergence(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return (KL(P || Q) + KL(Q || P)) / 2 (n,) in nats, float32, for a queue (K, d).

    Q is the softmax over j of query . queue_j / temperature, query (n, d), and P that of the key
    (n, d). Only the query gets a gradient, which is exact. Memory is that of a block of logits, not
    n * K.
    """
    # log P - log Q is linear in the negatives up to a constant, so the divergence is
    # (key - query) . (E_P[negative] - E_Q[negative]) / (2 temperature): two means suffice
    with torch.autocast(query.device.type, enabled=False):
        result: Tensor = _QueueDivergence.apply(
            query.float(), key.detach().float(), queue.float(), temperature
        )
    return result


class _QueueDivergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
        n = len(query)
        scaled = torch.cat([query, key]) / temperature  # first all of Q, then all of P
        largest = query.new_full((2 * n, 1), -torch.inf)
        total = query.new_zeros((2 * n, 1))
        mean = torch.zeros_like(scaled)  # E[negative], times `total` until the end
        weighted = torch.zeros_like(query)  # E_Q[log (Q / P) negative], likewise
        needs_gradient = ctx.needs_input_grad[0]
        for negatives in queue.split(block_keys(2 * n, query.device)):
            logits = scaled @ negatives.T
            gap = logits[:n] - logits[n:]  # log Q - log P up to a constant, which cancels below
            new_largest = torch.maximum(largest, logits.amax(dim=1, keepdim=True))
            shrink = (largest - new_largest).exp_()
            weights = logits.sub_(new_largest).exp_()
            total = total * shrink + weights.sum(dim=1, keepdim=True)
            mean = torch.addmm(mean * shrink, weights, negatives)
            if needs_gradient:
                weighted = torch.addmm(weighted * shrink[:n], gap.mul_(weights[:n]), negatives)
            largest = new_largest
        of_query, of_key = (mean / total).chunk(2)
        difference = (query - key) / temperature
        mean_gap = (difference * of_query).sum(dim=1, keepdim=True)
        covariance = weighted / total[:n] - mean_gap * of_query
        ctx.save_for_backward((of_query - of_key + covariance) / (2 * temperature))
        return (difference * (of_query - of_key)).sum(dim=1) / 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (query_gradient,) = ctx.saved_tensors
        return gradient[:, None] * query_gradient, None, None, None
