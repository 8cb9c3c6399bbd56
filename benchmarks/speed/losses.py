"""Losses and a prior of pre-training, against the usual ways to compute them.

Each way also computes the gradient. JCL streams its logits, LORAC's nuclear norms come from Gram
matrices, and SimTrace solves a linear system.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.speed.harness import compare, tell_numbers
from pretrain.command import DeviceChoice
from pretrain.launch import join_processes
from pretrain.methods.jcl import jcl_loss
from pretrain.methods.lorac import norm_log_prior, nuclear_norm
from pretrain.methods.uniclr import ONE_PAIR, uniclr_loss
from pretrain.recipes.lorac import LORACConfig
from pretrain.recipes.uniclr import UniCLRConfig

TEMPERATURE, COVARIANCE_WEIGHT = 0.2, 4.0
NUM_KEYS, DIM = 5, 128


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    device: DeviceChoice = "auto"
    num_queries: int = 512
    """N, queries of the losses."""
    queue_size: int = 65_536
    """K, keys in the queue of JCL."""
    embedding_dim: int = 2048
    """Embedding dimension of SimTrace."""
    rounds: int = 5
    """Number of times that each way is timed."""


Losses = tuple[str, Mapping[str, Callable[[], Tensor]], tuple[Tensor, ...]]
"""Title, losses () by the name of the way, and the inputs to which they have gradients."""


def run(settings: Settings) -> None:
    """Compare the ways of each loss."""
    with join_processes(settings.device) as process:
        torch.manual_seed(0)
        for make in (jcl, prior, trace):
            with process.device:  # of all that is made; the ways run outside, without its overhead
                title, losses, inputs = make(settings)
            ways = {name: partial(gradients, loss, inputs) for name, loss in losses.items()}
            found = compare(f"{title}, with gradient", ways, settings.rounds, memory=True)
            tell_numbers(distances(found))


def gradients(loss: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients of a loss, each in the shape of its input."""
    return torch.autograd.grad(loss(), inputs)


def distances(results: Mapping[str, Sequence[Tensor]]) -> dict[str, float]:
    """Return the distance of the second way's tensors from the first way's."""
    usual, ours = (torch.cat([t.detach().flatten() for t in each]) for each in results.values())
    return {"relative distance": float((ours - usual).norm() / usual.norm())}


def jcl(settings: Settings) -> Losses:
    """Return eq. 8 of JCL as it is written, by d x d covariances and all logits, and streamed."""
    size, queue_size = settings.num_queries, settings.queue_size
    query = normalize(torch.randn(size, DIM), dim=1).requires_grad_()
    noise = torch.randn(size, NUM_KEYS, DIM) / DIM**0.5
    keys = normalize(query.detach()[:, None] + 0.5 * noise, dim=2)
    queue = normalize(torch.randn(queue_size, DIM), dim=1)

    def written() -> Tensor:
        mean = keys.mean(dim=1)
        centered = keys - mean[:, None]
        covariance = centered.mT @ centered / NUM_KEYS
        variance = torch.einsum("nd,nde,ne->n", query, covariance, query) / TEMPERATURE**2
        penalty = COVARIANCE_WEIGHT / 2 * variance
        positive = (query * mean).sum(dim=1) / TEMPERATURE + penalty
        logits = torch.cat([positive[:, None], query @ queue.T / TEMPERATURE], dim=1)
        labels = torch.zeros(size, dtype=torch.int64, device=query.device)
        return cross_entropy(logits, labels) + penalty.mean()

    def streamed() -> Tensor:
        return jcl_loss(
            query, keys, queue, temperature=TEMPERATURE, covariance_weight=COVARIANCE_WEIGHT
        )

    title = f"JCL's loss, N {size}, M' {NUM_KEYS}, d {DIM}, K {queue_size}"
    return title, {"covariances and all logits": written, "ours": streamed}, (query,)


def prior(settings: Settings) -> Losses:
    """Return LORAC's prior by the SVD of each image's matrix, and ours."""
    num_images = settings.num_queries
    rows = normalize(torch.randn(num_images, NUM_KEYS, DIM), dim=2).requires_grad_()

    def summed(norms: Tensor) -> Tensor:
        log = norm_log_prior(norms, LORACConfig(), num_rows=NUM_KEYS, temperature=TEMPERATURE)
        return log.sum()

    losses = {
        "SVD": lambda: summed(torch.linalg.matrix_norm(rows, ord="nuc")),
        "ours": lambda: summed(nuclear_norm(rows)),
    }
    return f"LORAC's prior, {num_images} matrices of {NUM_KEYS} x {DIM}", losses, (rows,)


def trace(settings: Settings) -> Losses:
    """Return SimTrace by the inverse of the covariance, with ridge 1, and ours."""
    num_images, dim = settings.num_queries, settings.embedding_dim
    z1 = torch.randn(num_images, dim).requires_grad_()
    z2 = (z1.detach() + 0.5 * torch.randn(num_images, dim)).requires_grad_()
    config = UniCLRConfig(variant="trace", ridge=1.0, embedding_dim=dim)

    def by_inverse() -> Tensor:
        rows = torch.cat([z1, z2])
        centered = rows - rows.mean(dim=0)
        covariance = centered.T @ centered / len(rows)
        ridge = covariance.trace() / dim * torch.eye(dim, device=z1.device)
        first, second = centered.chunk(2)
        inverse: Tensor = torch.linalg.inv(covariance + ridge)
        return -(first @ inverse @ second.T).trace() / z1.numel()

    losses = {
        "explicit inverse": by_inverse,
        "ours": lambda: uniclr_loss(torch.stack([z1, z2]), ONE_PAIR, config)["loss"],
    }
    return f"SimTrace, N {num_images}, D {dim}", losses, (z1, z2)
