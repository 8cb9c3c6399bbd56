"""Time and memory of loss parts against the usual way to compute them.

pretrain.benchmark prints these ratios.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from torchvision.models import resnet50

from pretrain.methods.jcl import jcl_loss
from pretrain.methods.lorac import laplace_log_prior, nuclear_norm
from pretrain.methods.uniclr import ONE_PAIR, uniclr_loss
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.recipes.uniclr import UniCLRConfig
from pretrain.speed.timing import peak_mb, time_in_turns

TEMPERATURE, COVARIANCE_WEIGHT = 0.2, 4.0


def usual_jcl_loss(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
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


def streamed_jcl_loss(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """Return the same loss, (n, d), (n, M, d), (K, d) -> (), by `pretrain.methods.jcl`."""
    return jcl_loss(
        query, keys, queue, temperature=TEMPERATURE, covariance_weight=COVARIANCE_WEIGHT
    )


def jcl_report(size: int, queue_size: int, num_rounds: int, device: torch.device) -> str:
    """Compare time, memory and gradients of both implementations of JCL's loss."""
    torch.manual_seed(0)
    num_keys, dim = 5, 128
    query = normalize(torch.randn(size, dim, device=device), dim=1).requires_grad_()
    noise = torch.randn(size, num_keys, dim, device=device) / dim**0.5
    keys = normalize(query.detach()[:, None] + 0.5 * noise, dim=2)
    queue = normalize(torch.randn(queue_size, dim, device=device), dim=1)

    def gradient(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        (result,) = torch.autograd.grad(loss(query, keys, queue), query)
        return result

    usual_s, streamed_s = time_in_turns(
        lambda: gradient(usual_jcl_loss), lambda: gradient(streamed_jcl_loss), num_rounds, device
    )
    usual_mb = peak_mb(lambda: gradient(usual_jcl_loss), device)
    streamed_mb = peak_mb(lambda: gradient(streamed_jcl_loss), device)
    expected = gradient(usual_jcl_loss)
    apart = (gradient(streamed_jcl_loss) - expected).norm() / expected.norm()
    return (
        f"JCL loss, N {size}, M' {num_keys}, d {dim}, K {queue_size}: "
        f"time {usual_s / streamed_s:.2f}x ({1e3 * usual_s:.0f} -> {1e3 * streamed_s:.0f} ms), "
        f"memory {usual_mb / streamed_mb:.1f}x ({usual_mb:.0f} -> {streamed_mb:.0f} MB), "
        f"gradients {apart:.0e} apart"
    )


def momentum_report(num_rounds: int, device: torch.device) -> str:
    """Compare the fused momentum update of a ResNet-50 with a loop over its parameters."""
    encoder = resnet50().to(device)
    momentum_encoder = MomentumEncoder(encoder, 0.999).to(device)

    def loop() -> None:
        pairs = zip(momentum_encoder.network.parameters(), encoder.parameters(), strict=True)
        for own, other in pairs:
            own.data = own.data * 0.999 + other.data * (1 - 0.999)

    loop_s, fused_s = time_in_turns(
        loop, lambda: momentum_encoder.update(encoder), 4 * num_rounds, device
    )
    return (
        f"momentum update of ResNet-50: {loop_s / fused_s:.1f}x "
        f"({1e3 * loop_s:.1f} -> {1e3 * fused_s:.1f} ms)"
    )


def prior_report(num_images: int, num_rounds: int, device: torch.device) -> str:
    """Compare LORAC's prior and gradient by Gram matrices with one SVD and one per query."""
    num_rows, dim, num_queries = 5, 128, 7
    torch.manual_seed(0)
    rows = normalize(torch.randn(num_images, num_rows, dim, device=device), dim=2).requires_grad_()

    def prior(norm: Tensor) -> Tensor:
        return laplace_log_prior(norm, num_rows=num_rows, beta=4.0, temperature=TEMPERATURE)

    def gradient(norms: Callable[[], Tensor]) -> Tensor:
        (result,) = torch.autograd.grad(prior(norms()).sum(), rows)
        return result

    def by_svd() -> Tensor:
        norms: Tensor = torch.linalg.matrix_norm(rows, ord="nuc")
        return norms

    def per_query() -> Tensor:
        return torch.stack([by_svd() for _ in range(num_queries)]).mean(dim=0)

    def ours() -> Tensor:
        return nuclear_norm(rows)

    rounds = 4 * num_rounds
    svd_s, ours_s = time_in_turns(lambda: gradient(by_svd), lambda: gradient(ours), rounds, device)
    query_s, again_s = time_in_turns(
        lambda: gradient(per_query), lambda: gradient(ours), rounds, device
    )
    expected = gradient(by_svd)
    apart = (gradient(ours) - expected).norm() / expected.norm()
    return (
        f"LORAC prior and gradient, {num_images} x {num_rows} x {dim}: {svd_s / ours_s:.1f}x of "
        f"one SVD ({1e3 * svd_s:.1f} -> {1e3 * ours_s:.1f} ms), {query_s / again_s:.1f}x of "
        f"one for each of {num_queries} queries, gradients {apart:.0e} apart"
    )


def inverse_trace_loss(z1: Tensor, z2: Tensor) -> Tensor:
    """Return SimTrace of z1, z2 (N, D) by the inverse of the covariance; ridge 1."""
    rows = torch.cat([z1, z2])
    centered = rows - rows.mean(dim=0)
    covariance = centered.T @ centered / len(rows)
    dim = len(covariance)
    ridge = covariance.trace() / dim * torch.eye(dim, device=rows.device)
    first, second = centered.chunk(2)
    inverse: Tensor = torch.linalg.inv(covariance + ridge)
    affinity = first @ inverse @ second.T
    return -affinity.trace() / z1.numel()


def trace_report(num_images: int, dim: int, num_rounds: int, device: torch.device) -> str:
    """Compare SimTrace and its gradient with those by the explicit inverse."""
    torch.manual_seed(0)
    z1 = torch.randn(num_images, dim, device=device).requires_grad_()
    z2 = (z1.detach() + 0.5 * torch.randn(num_images, dim, device=device)).requires_grad_()

    def gradient(loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return torch.cat(torch.autograd.grad(loss(z1, z2), (z1, z2)))

    config = UniCLRConfig(variant="trace", ridge=1.0, embedding_dim=dim)

    def ours(first: Tensor, second: Tensor) -> Tensor:
        return uniclr_loss(torch.stack([first, second]), ONE_PAIR, config)["loss"]

    inverse_s, ours_s = time_in_turns(
        lambda: gradient(inverse_trace_loss), lambda: gradient(ours), num_rounds, device
    )
    expected = gradient(inverse_trace_loss)
    apart = (gradient(ours) - expected).norm() / expected.norm()
    return (
        f"SimTrace and gradient, N {num_images}, D {dim}: {inverse_s / ours_s:.1f}x of the "
        f"explicit inverse ({1e3 * inverse_s:.0f} -> {1e3 * ours_s:.0f} ms), "
        f"gradients {apart:.0e} apart"
    )
