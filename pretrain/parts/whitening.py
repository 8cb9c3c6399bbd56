"""Whitened cosines: rows compared in the metric of the inverse of their own covariance.

Li et al., UniCLR, arXiv:2211.14516, eq. 2 to 4 and section 3.2. Inner products of whitened rows
are the same for every whitening matrix, so one Cholesky factor serves; no matrix is inverted. The
trace of the whitened cross-covariance has its gradient in closed form: autograd would keep and
differentiate d x d matrices.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

Pairs = Sequence[tuple[int, int]]
"""Pairs of views that are compared, by their places."""

NUM_RETRIES = 3


class Factor(NamedTuple):
    """Cholesky factors of G groups of features in each of B batches."""

    lower: Tensor
    """(B, G, m, m), the identity where all attempts failed."""
    ridge: Tensor
    """(B, G), additions to the diagonal."""
    succeeded: Tensor
    """(B,), whether all groups of a batch have a factor."""

    def mask_failures(self, values: Tensor) -> Tensor:
        """Return values (B,), zero for a batch without a factor, but NaN where its rows are."""
        return values.where(self.succeeded, 0 * self.ridge.detach().sum(dim=1))

    def metrics(self) -> dict[str, Tensor]:
        """Return an estimate of the largest condition number, and the batches without a factor."""
        diagonal = self.lower.detach().diagonal(dim1=-2, dim2=-1)
        return {
            "condition_number": (diagonal.amax(dim=-1) / diagonal.amin(dim=-1)).square().max(),
            "whitening_failures": (~self.succeeded).float().sum(),
        }


def factorize(matrix: Tensor, ridge: Tensor) -> Factor:
    """Return Cholesky factors of matrix (B, G, m, m) plus ridge (B, G) times the identity.

    A factorization that fails is repeated with ten times the ridge, up to three times.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for attempt in range(1 + NUM_RETRIES):
        ridged = matrix + ridge[..., None, None] * identity
        lower, info = torch.linalg.cholesky_ex(ridged)
        failed = (info != 0) | ~lower.diagonal(dim1=-2, dim2=-1).isfinite().all(dim=-1)
        # this waits for the device, once in a step: factors computed in advance for retries, which
        # are rare, would cost more
        if not failed.any():
            break
        if attempt < NUM_RETRIES:
            ridge = torch.where(failed, 10 * ridge, ridge)
    else:
        # the identity, since NaN in a factor would survive in a gradient that is multiplied by zero
        lower = torch.linalg.cholesky(torch.where(failed[..., None, None], identity, ridged))
    return Factor(lower, ridge, ~failed.any(dim=1))


def center_and_group(views: Tensor, groups: int) -> Tensor:
    """Return M = V N centered rows (B, G, M, D/G) of views (B, V, N, D), features in G groups."""
    rows = views.flatten(1, 2)
    centered: Tensor = rows - rows.mean(dim=1, keepdim=True)
    grouped: Tensor = centered.unflatten(2, (groups, -1))
    return grouped.transpose(1, 2)


def second_moment(rows: Tensor, *, dual: bool) -> Tensor:
    """Return the covariance (B, G, d, d) of rows (B, G, M, d), or its dual (B, G, M, M).

    Both have the same eigenvalues besides zeros.
    """
    vectors = rows if dual else rows.mT
    half = vectors.shape[-2] // 2
    # the product is symmetric, so a quarter of it need not be computed
    first = vectors[..., :half, :] @ vectors[..., :half, :].mT
    second = vectors[..., half:, :] @ vectors.mT
    product = torch.cat([torch.cat([first, second[..., :half].mT], dim=-1), second], dim=-2)
    return product / rows.shape[-2]


def factorize_moment(moment: Tensor, dim: int, ridge: float) -> Factor:
    """Return factors of a moment (B, G, m, m) of features plus ridge times their mean variance."""
    variance = moment.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / dim
    return factorize(moment, ridge * variance)


def whitened_cosines(
    views: Tensor, pairs: Pairs, *, ridge: float, groups: int = 1, detach: bool = False
) -> tuple[Tensor, Factor]:
    """Return cosines (B, P, N, N) of whitened rows for P pairs of views (B, V, N, D), and factors.

    Mean and covariance are those of all V N rows of a batch. `ridge` is the share of the mean
    variance that is added to the diagonal, so that scale does not matter. Each of the groups of
    features is whitened by itself, and they are joined before rows are normalized. detach: no
    gradient through the covariance.
    """
    rows = center_and_group(views, groups)
    num_rows, dim = rows.shape[-2:]
    shape = views.shape[1:3]
    if dim <= num_rows or detach:
        moment = second_moment(rows.detach() if detach else rows, dual=False)
        factor = factorize_moment(moment, dim, ridge)
        white = torch.linalg.solve_triangular(factor.lower, rows.mT, upper=False).mT
        unit = normalize(white.transpose(1, 2).flatten(2), dim=2).unflatten(1, shape)
        return torch.stack([unit[:, a] @ unit[:, b].mT for a, b in pairs], dim=1), factor
    moment = second_moment(rows, dual=True)
    factor = factorize_moment(moment, dim, ridge)
    # H (H'H/M + r I)^-1 H' = (HH'/M + r I)^-1 HH', an M x M system in place of a d x d one
    inner = num_rows * torch.cholesky_solve(moment, factor.lower).sum(dim=1)
    length = inner.diagonal(dim1=-2, dim2=-1).clamp_min(1e-24).sqrt()
    cosines = inner / (length[:, :, None] * length[:, None, :])
    blocks = cosines.unflatten(2, shape).unflatten(1, shape)
    return torch.stack([blocks[:, a, :, b] for a, b in pairs], dim=1), factor


def whitened_trace(
    views: Tensor, pairs: Pairs, *, ridge: float, groups: int = 1, detach: bool = False
) -> tuple[Tensor, Factor]:
    """Return the sum (B,) over N images of z_a' S^-1 z_b, mean over pairs (a, b), and factors.

    views (B, V, N, D) are centered together; settings are those of `whitened_cosines`. S is the
    covariance of all V N rows plus the ridge, for each group of features, whose traces are added.
    With two views the trace lies in [-N D, N D]. Where S has no Cholesky factor the trace and its
    gradient are zero.
    """
    trace, *factor = _WhitenedTrace.apply(views, pairs, ridge, groups, detach)
    return trace, Factor(*factor)


class _WhitenedTrace(torch.autograd.Function):
    """The trace, whose gradient is computed in forward, where the factor is at hand."""

    @staticmethod
    def forward(
        ctx: Any, views: Tensor, pairs: Pairs, ridge: float, groups: int, detach: bool
    ) -> tuple[Tensor, ...]:
        rows = center_and_group(views, groups)
        num_rows, dim = rows.shape[-2:]
        dual = dim > num_rows
        moment = second_moment(rows, dual=dual)
        factor = factorize_moment(moment, dim, ridge)
        closed_form = _dual if dual else _primal
        trace, gradient = closed_form(rows, moment, factor, pairs, views.shape[2], detach)
        gradient = gradient.transpose(1, 2).reshape(views.shape)
        ctx.save_for_backward(gradient, factor.succeeded)
        ctx.mark_non_differentiable(*factor)
        return factor.mask_failures(trace), *factor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, trace_gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradient, succeeded = ctx.saved_tensors
        scale = trace_gradient.where(succeeded, 0)
        return scale[:, None, None, None] * gradient, None, None, None, None


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
