"""A ring buffer of past keys, and memory-efficient losses over it.

The losses never form the matrix of all similarities. He et al., CVPR 2020, arXiv:1911.05722,
section 3.2.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.gather import gather


class KeyQueue(nn.Module):
    """A queue of `keys` (K, d), initialized with unit-length noise.

    `position` is the index of the row that is replaced next. Both are buffers, so checkpoints
    contain them.
    """

    keys: Tensor
    position: Tensor

    def __init__(self, size: int, embedding_dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", normalize(torch.randn(size, embedding_dim), dim=1))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        """Replace the oldest N rows by all processes' keys.

        keys (n, d). N need not divide K.
        """
        keys = gather(keys.to(self.keys.dtype))
        size = len(self.keys)
        # `position` is a tensor: with a number, each push would wait for the device
        rows = (self.position + torch.arange(len(keys), device=keys.device)) % size
        self.keys.index_copy_(0, rows, keys)
        self.position.add_(len(keys)).remainder_(size)


def key_queues(number: int, size: int, embedding_dim: int) -> Sequence[KeyQueue]:
    """Return a module with several queues."""
    queues = [KeyQueue(size, embedding_dim) for _ in range(number)]
    return cast(Sequence[KeyQueue], nn.ModuleList(queues))


BLOCK_KEYS = 4096
"""Keys per block on a CPU; the minimum on a GPU.
A CPU's cache holds their logits."""
BLOCK_LOGITS = 2**24
"""Logits per block on a GPU (64 MB).

Smaller kernels would take longer to launch than to run."""


def queue_logsumexp(query: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return log sum_j exp(query . queue_j / temperature) (n,), in nats, float32.

    query (n, d), queue (K, d). The queue is read in blocks with a running maximum, and the same
    pass computes the gradient of the query. So memory holds one block of logits, not n * K. The
    gradient is exact; the queue gets none.
    """
    return queue_logsumexp_and_largest(query, queue, temperature=temperature)[0]


def queue_logsumexp_and_largest(
    query: Tensor, queue: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return `queue_logsumexp` and max_j query . queue_j / temperature, (n,) each.

    float32. The maximum comes from the same pass and has no gradient.
    """
    with torch.autocast(query.device.type, enabled=False):
        logsumexp, largest = _QueueLogSumExp.apply(query.float(), queue.float(), temperature)
    return logsumexp, largest


def block_keys(num_queries: int, device: torch.device) -> int:
    """Return the number of keys per block for n queries.

    It does not depend on the queue's length.
    """
    if device.type != "cuda":
        return BLOCK_KEYS
    return max(BLOCK_LOGITS // num_queries // BLOCK_KEYS, 1) * BLOCK_KEYS


@torch.no_grad()
def expected_key(query: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return the queue's mean under each query's softmax: (n, d).

    query (n, d), queue (K, d). Computed in float32, also under autocast. Memory holds one block of
    logits at a time.
    """
    with torch.autocast(query.device.type, enabled=False):
        sums = _softmax(query.float(), queue.float(), temperature, with_mean=True)
        return sums[2] / sums[1]


def _softmax(
    query: Tensor, queue: Tensor, temperature: float, *, with_mean: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return largest logits, sums of weights, weighted sums of keys.

    Shapes (n, 1), (n, 1) and (n, d). Weights are exp(logit - largest logit).
    """
    scaled = query / temperature
    largest = query.new_full((len(query), 1), -torch.inf)
    total = query.new_zeros((len(query), 1))
    weighted = torch.zeros_like(query)
    for keys in queue.split(block_keys(len(query), query.device)):
        logits = scaled @ keys.T
        new_largest = torch.maximum(largest, logits.amax(dim=1, keepdim=True))
        shrink = (largest - new_largest).exp_()
        weights = logits.sub_(new_largest).exp_()
        total = total * shrink + weights.sum(dim=1, keepdim=True)
        if with_mean:
            weighted = torch.addmm(weighted * shrink, weights, keys)
        largest = new_largest
    return largest, total, weighted


class _QueueLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, queue: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        largest, total, weighted = _softmax(
            query, queue, temperature, with_mean=ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(weighted / (total * temperature))
        largest = largest.squeeze(1)
        ctx.mark_non_differentiable(largest)
        return largest + total.squeeze(1).log(), largest

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (query_gradient,) = ctx.saved_tensors
        return gradient[:, None] * query_gradient, None, None


def queue_divergence(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Return the symmetric KL divergence of two softmaxes, (n,).

    It is (KL(P || Q) + KL(Q || P)) / 2 in nats, float32, for a queue (K, d). Q is the softmax over
    j of query . queue_j / temperature, query (n, d), and P is the same for the key (n, d). Only the
    query gets a gradient, which is exact. Memory holds one block of logits, not n * K.
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
        scaled = torch.cat([query, key]) / temperature  # rows of Q, then rows of P
        largest = query.new_full((2 * n, 1), -torch.inf)
        total = query.new_zeros((2 * n, 1))
        mean = torch.zeros_like(scaled)  # E[negative], times `total` until the end
        weighted = torch.zeros_like(query)  # E_Q[log (Q / P) negative], also times `total`
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
        query_mean, key_mean = (mean / total).chunk(2)
        difference = (query - key) / temperature
        mean_gap = (difference * query_mean).sum(dim=1, keepdim=True)
        covariance = weighted / total[:n] - mean_gap * query_mean
        ctx.save_for_backward((query_mean - key_mean + covariance) / (2 * temperature))
        return (difference * (query_mean - key_mean)).sum(dim=1) / 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (query_gradient,) = ctx.saved_tensors
        return gradient[:, None] * query_gradient, None, None, None
