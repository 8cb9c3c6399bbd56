"""Losses, a prior and the momentum update of pre-training, against the usual ways to compute them.

Each way of a loss also computes the gradient. JCL streams its logits, LORAC's nuclear norms come
from Gram matrices, SimTrace solves a linear system, and the momentum update is one fused call.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from torchvision.models import resnet50

from benchmarks.speed.harness import Comparison
from pretrain.command import DeviceChoice
from pretrain.launch import join_processes
from pretrain.methods.jcl import jcl_loss
from pretrain.methods.lorac import laplace_log_prior, nuclear_norm
from pretrain.methods.uniclr import ONE_PAIR, uniclr_loss
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.recipes.uniclr import UniCLRConfig

TEMPERATURE, COVARIANCE_WEIGHT, MOMENTUM = 0.2, 4.0, 0.999
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


def comparisons(settings: Settings) -> Iterator[Comparison]:
    """Yield one comparison per loss, and that of the momentum update."""
    with join_processes(settings.device) as process:
        torch.manual_seed(0)
        for compare in (compare_jcl, compare_prior, compare_trace, compare_momentum):
            with process.device:  # of all that is made; the ways run outside, without its overhead
                comparison = compare(settings)
            yield comparison


def compare_jcl(settings: Settings) -> Comparison:
    """Compare JCL's loss with eq. 8 of the paper as it is written."""
    size, queue_size = settings.num_queries, settings.queue_size
    query = normalize(torch.randn(size, DIM), dim=1).requires_grad_()
    noise = torch.randn(size, NUM_KEYS, DIM) / DIM**0.5
    keys = normalize(query.detach()[:, None] + 0.5 * noise, dim=2)
    queue = normalize(torch.randn(queue_size, DIM), dim=1)

    def streamed() -> Tensor:
        return jcl_loss(
            query, keys, queue, temperature=TEMPERATURE, covariance_weight=COVARIANCE_WEIGHT
        )

    return _of_gradients(
        f"JCL's loss, N {size}, M' {NUM_KEYS}, d {DIM}, K {queue_size}",
        {"covariances and all logits": lambda: written_jcl(query, keys, queue), "ours": streamed},
        query,
    )


def written_jcl(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """Return eq. 8 of JCL by d x d covariances and all logits: (n, d), (n, M, d), (K, d) -> ()."""
    mean = keys.mean(dim=1)
    centered = keys - mean[:, None]
    covariance = centered.mT @ centered / keys.shape[1]
    variance = torch.einsum("nd,nde,ne->n", query, covariance, query) / TEMPERATURE**2
    penalty = COVARIANCE_WEIGHT / 2 * variance
    positive = (query * mean).sum(dim=1) / TEMPERATURE + penalty
    logits = torch.cat([positive[:, None], query @ queue.T / TEMPERATURE], dim=1)
    labels = torch.zeros(len(query), dtype=torch.int64, device=query.device)
    return cross_entropy(logits, labels) + penalty.mean()


def compare_prior(settings: Settings) -> Comparison:
    """Compare LORAC's prior with that by the SVD of each image's matrix."""
    num_images = settings.num_queries
    rows = normalize(torch.randn(num_images, NUM_KEYS, DIM), dim=2).requires_grad_()

    def prior(norm: Tensor) -> Tensor:
        log = laplace_log_prior(norm, num_rows=NUM_KEYS, beta=4.0, temperature=TEMPERATURE)
        return log.sum()

    def by_svd() -> Tensor:
        norms: Tensor = torch.linalg.matrix_norm(rows, ord="nuc")
        return norms

    return _of_gradients(
        f"LORAC's prior, {num_images} matrices of {NUM_KEYS} x {DIM}",
        {"SVD": lambda: prior(by_svd()), "ours": lambda: prior(nuclear_norm(rows))},
        rows,
    )


def compare_trace(settings: Settings) -> Comparison:
    """Compare SimTrace with that by the inverse of the covariance; ridge 1."""
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
        affinity = first @ inverse @ second.T
        return -affinity.trace() / z1.numel()

    return _of_gradients(
        f"SimTrace, N {num_images}, D {dim}",
        {
            "explicit inverse": by_inverse,
            "ours": lambda: uniclr_loss(torch.stack([z1, z2]), ONE_PAIR, config)["loss"],
        },
        z1,
        z2,
    )


def compare_momentum(_: Settings) -> Comparison:
    """Compare the momentum update of a ResNet-50 with a loop over its parameters."""
    encoder = resnet50()
    looped, fused = (MomentumEncoder(encoder, MOMENTUM) for _ in range(2))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 1

    def loop() -> Sequence[Tensor]:
        own = list(looped.network.parameters())
        for mine, other in zip(own, encoder.parameters(), strict=True):
            mine.data = mine.data * MOMENTUM + other.data * (1 - MOMENTUM)
        return own

    def ours() -> Sequence[Tensor]:
        fused.update(encoder)
        return list(fused.network.parameters())

    return Comparison(
        title="momentum update of a ResNet-50",
        ways={"loop over parameters": loop, "ours": ours},
        agreement=_distances,
    )


def _of_gradients(
    title: str, losses: Mapping[str, Callable[[], Tensor]], *inputs: Tensor
) -> Comparison:
    """Return the comparison of losses () and their gradients with respect to the inputs."""

    def gradients(loss: Callable[[], Tensor]) -> Callable[[], Sequence[Tensor]]:
        return lambda: torch.autograd.grad(loss(), inputs)

    return Comparison(
        title=f"{title}, with gradient",
        ways={name: gradients(loss) for name, loss in losses.items()},
        agreement=_distances,
        memory=True,
    )


def _distances(results: Mapping[str, Sequence[Tensor]]) -> dict[str, float]:
    """Return the distance of the second way's tensors from the first way's."""
    usual, ours = (torch.cat([t.detach().flatten() for t in each]) for each in results.values())
    return {"relative distance": float((ours - usual).norm() / usual.norm())}
