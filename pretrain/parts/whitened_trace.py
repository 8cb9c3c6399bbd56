"""Trace of the whitened cross-covariance of two views, with its gradient in closed form.

Li et al., UniCLR, arXiv:2211.14516, eq. 3 and 4. Autograd would keep and differentiate d x d
matrices; the formulas here need one Cholesky factor, of the smaller side of the rows.
"""

from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pretrain.parts.whitening import (
    Factor,
    Pairs,
    Whitening,
    center_and_group,
    factorize_moment,
    second_moment,
)


def whitened_trace(views: Tensor, pairs: Pairs, whitening: Whitening) -> tuple[Tensor, Factor]:
    """Return the sum (B,) over N images of z_a' S^-1 z_b, mean over pairs (a, b), and factors.

    views (B, V, N, D) are centered together. S is the covariance of all V N rows plus the ridge,
    for each group of features, whose traces are added. With two views the trace lies in
    [-N D, N D]. Where S has no Cholesky factor the trace and its gradient are zero.
    """
    trace, *factor = _WhitenedTrace.apply(views, pairs, whitening)
    return trace, Factor(*factor)


class _WhitenedTrace(torch.autograd.Function):
    """The trace, whose gradient is computed in forward, where the factor is at hand."""

    @staticmethod
    def forward(ctx: Any, views: Tensor, pairs: Pairs, whitening: Whitening) -> tuple[Tensor, ...]:
        rows = center_and_group(views, whitening.groups)
        num_rows, dim = rows.shape[-2:]
        dual = dim > num_rows
        moment = second_moment(rows, dual=dual)
        factor = factorize_moment(moment, dim, whitening.ridge)
        closed_form = _dual if dual else _primal
        trace, gradient = closed_form(
            rows, moment, factor, pairs, views.shape[2], whitening.detach_covariance
        )
        gradient = gradient.transpose(1, 2).reshape(views.shape)
        ctx.save_for_backward(gradient, factor.succeeded)
        ctx.mark_non_differentiable(*factor)
        return factor.mask_failures(trace), *factor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, trace_gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradient, succeeded = ctx.saved_tensors
        scale = trace_gradient.where(succeeded, 0)
        return scale[:, None, None, None] * gradient, None, None


def _primal(
    rows: Tensor, moment: Tensor, factor: Factor, pairs: Pairs, num_images: int, detach: bool
) -> tuple[Tensor, Tensor]:
    """Return the trace (B,) and its gradient in rows H (B, G, M, d), by the covariance C = H'H/M.

    With E pairing rows and P = (C + r I)^-1 the trace is <H P, E H>; dP = -P dC P.
    """
    whitened = _solve(rows, factor)
    trace = (whitened * _partners(rows, pairs, num_images)).sum(dim=(1, 2, 3))
    paired = _partners(whitened, pairs, num_images)
    gradient = 2 * paired
    if not detach:
        gradient -= rows @ (whitened.mT @ paired) * (2 / rows.shape[2])
        slope = (gradient * rows).sum(dim=(2, 3)) / _total_variance(moment) / rows.shape[2]
        gradient -= slope[..., None, None] * rows  # the ridge's part: see _dual
    return trace, gradient - gradient.mean(dim=2, keepdim=True)


def _dual(
    rows: Tensor, moment: Tensor, factor: Factor, pairs: Pairs, num_images: int, detach: bool
) -> tuple[Tensor, Tensor]:
    """Return the same by the M x M moment K = HH'/M, with F = (K + r I)^-1.

    H P H' = HH'F = M (I - r F), so the trace is -M r <E, F>, and its gradient at a fixed r is
    r (F E F + F E'F) H. The trace does not depend on the scale of H, to which r is tied: what r
    adds is the multiple of H that leaves no slope along H.
    """
    identity = torch.eye(moment.shape[-1], dtype=moment.dtype, device=moment.device)
    resolvent = _solve(identity.expand_as(moment), factor)
    blocks = resolvent.unflatten(3, (-1, num_images)).unflatten(2, (-1, num_images))
    paired = torch.stack([blocks[:, :, a, :, b].diagonal(dim1=-2, dim2=-1) for a, b in pairs])
    trace = -rows.shape[2] * (factor.ridge * paired.sum(dim=-1).mean(dim=0)).sum(dim=1)
    if detach:
        weights = 2 * _partners(resolvent, pairs, num_images)
    else:
        between = _between(blocks, pairs)
        weights = (between + between.mT) * factor.ridge[..., None, None]
        slope = (weights * moment).sum(dim=(2, 3)) / _total_variance(moment)
        weights.diagonal(dim1=-2, dim2=-1).sub_(slope[..., None])
    return trace, (weights - weights.mean(dim=2, keepdim=True)) @ rows


def _between(blocks: Tensor, pairs: Pairs) -> Tensor:
    """Return F E F / P (B, G, M, M) for blocks (B, G, V, N, V, N) of F; E pairs view a with b."""
    products = []
    for b in dict.fromkeys(b for _, b in pairs):
        columns = [blocks[:, :, :, :, a] for a, other in pairs if other == b]
        products.append(reduce(torch.add, columns).flatten(2, 3) @ blocks[:, :, b].flatten(3))
    total: Tensor = reduce(torch.add, products)
    return total / len(pairs)


def _solve(rows: Tensor, factor: Factor) -> Tensor:
    """Return rows (B, G, k, m) times the inverse of L L'."""
    # solving from the right is twice as fast on CPUs as torch.cholesky_solve
    half = torch.linalg.solve_triangular(factor.lower.mT, rows, upper=True, left=False)
    solved: Tensor = torch.linalg.solve_triangular(factor.lower, half, upper=False, left=False)
    return solved


def _total_variance(moment: Tensor) -> Tensor:
    """Return traces (B, G) of moments (B, G, m, m), above zero also where all rows are equal."""
    trace = moment.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return trace.clamp_min(torch.finfo(moment.dtype).tiny)


def _partners(rows: Tensor, pairs: Pairs, num_images: int) -> Tensor:
    """Return E H / P: for each row of (B, G, V N, d) half the sum of its partners, divided by P."""
    views: Tensor = rows.unflatten(2, (-1, num_images))
    partners = torch.zeros_like(views)
    weight = 0.5 / len(pairs)
    for a, b in pairs:
        partners[:, :, a].add_(views[:, :, b], alpha=weight)
        partners[:, :, b].add_(views[:, :, a], alpha=weight)
    return partners.flatten(2, 3)
