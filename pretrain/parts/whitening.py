"""Cosine similarities of whitened rows.

Li et al., UniCLR, arXiv:2211.14516, eq. 2 to 4 and section 3.2. Inner products of whitened rows are
the same for every whitening matrix, so a Cholesky factor is enough; no matrix is inverted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

Pairs = Sequence[tuple[int, int]]
"""Pairs of indices of the views to compare."""

NUM_RETRIES = 3


class Factor(NamedTuple):
    """Cholesky factors of G groups of features in each of B batches."""

    lower: Tensor
    """(B, G, m, m); the identity where all attempts failed."""
    ridge: Tensor
    """(B, G), the numbers added to the diagonal."""
    succeeded: Tensor
    """(B,), whether all groups of a batch were factorized."""

    def mask_failures(self, values: Tensor) -> Tensor:
        """Return values (B,), zeroed where the factorization failed.

        Batches with NaN rows give NaN.
        """
        return values.where(self.succeeded, 0 * self.ridge.detach().sum(dim=1))

    def metrics(self) -> dict[str, Tensor]:
        """Return an estimated maximum condition number and the number of failed batches."""
        diagonal = self.lower.detach().diagonal(dim1=-2, dim2=-1)
        return {
            "condition_number": (diagonal.amax(dim=-1) / diagonal.amin(dim=-1)).square().max(),
            "whitening_failures": (~self.succeeded).float().sum(),
        }


def factorize(matrix: Tensor, ridge: Tensor) -> Factor:
    """Return Cholesky factors of matrices plus a ridge.

    matrix (B, G, m, m); ridge (B, G) is multiplied by the identity. A failed factorization is
    repeated with ten times the ridge, up to three times.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for attempt in range(1 + NUM_RETRIES):
        ridged = matrix + ridge[..., None, None] * identity
        lower, info = torch.linalg.cholesky_ex(ridged)
        failed = (info != 0) | ~lower.diagonal(dim1=-2, dim2=-1).isfinite().all(dim=-1)
        # this waits for the device once per step; computing the rare retries in advance would
        # cost more
        if not failed.any():
            break
        if attempt < NUM_RETRIES:
            ridge = torch.where(failed, 10 * ridge, ridge)
    else:
        # the identity, since a NaN would stay NaN in a gradient that is multiplied by zero
        lower = torch.linalg.cholesky(torch.where(failed[..., None, None], identity, ridged))
    return Factor(lower, ridge, ~failed.any(dim=1))


def factorize_moment(moment: Tensor, dim: int, ridge: float) -> Factor:
    """Return factors of moments (B, G, m, m) plus a ridge.

    `ridge` is relative to the mean variance of the features.
    """
    variance = moment.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / dim
    return factorize(moment, ridge * variance)


def whitened_cosines(
    views: Tensor, pairs: Pairs, *, ridge: float, groups: int = 1, detach: bool = False
) -> tuple[Tensor, Factor]:
    """Return cosines (B, P, N, N) of whitened rows, and factors.

    views (B, V, N, D). Mean and covariance are computed over all V N rows of a batch. `ridge`,
    added to the diagonal, is a fraction of the mean variance, so the result does not depend on the
    scale. Each group of features is whitened separately; the groups are concatenated before rows
    are normalized. detach: no gradient through the covariance.
    """
    white, inner, factor = _whiten(views, ridge, groups, detach)
    shape = views.shape[1:3]
    if white is not None:
        unit = normalize(white, dim=2).unflatten(1, shape)
        return torch.stack([unit[:, a] @ unit[:, b].mT for a, b in pairs], dim=1), factor
    length = inner.diagonal(dim1=-2, dim2=-1).clamp_min(1e-24).sqrt()
    cosines = inner / (length[:, :, None] * length[:, None, :])
    blocks = cosines.unflatten(2, shape).unflatten(1, shape)
    return torch.stack([blocks[:, a, :, b] for a, b in pairs], dim=1), factor


def whitened_trace(
    views: Tensor, pairs: Pairs, *, ridge: float, groups: int = 1, detach: bool = False
) -> tuple[Tensor, Factor]:
    """Return the trace of whitened products (B,), and factors.

    It is the sum over N images of z_a' S^-1 z_b, averaged over pairs (a, b). views (B, V, N, D) are
    centered together; for the settings see `whitened_cosines`. S is the covariance of all V N rows
    plus the ridge, for each group of features; the traces of the groups are added. With two views
    the trace is in [-N D, N D]. If S has no Cholesky factor, the trace and its gradient are zero.
    """
    white, inner, factor = _whiten(views, ridge, groups, detach)
    shape = views.shape[1:3]
    if white is not None:
        rows = white.unflatten(1, shape)
        traces = [(rows[:, a] * rows[:, b]).sum(dim=(1, 2)) for a, b in pairs]
    else:
        blocks = inner.unflatten(2, shape).unflatten(1, shape)
        traces = [blocks[:, a, :, b].diagonal(dim1=1, dim2=2).sum(dim=1) for a, b in pairs]
    return factor.mask_failures(torch.stack(traces).mean(dim=0)), factor


def _whiten(
    views: Tensor, ridge: float, groups: int, detach: bool
) -> tuple[Tensor | None, Tensor, Factor]:
    """Return whitened rows (B, V N, D), moments and factors.

    With fewer rows than features, return None and the inner products of the whitened rows instead.
    """
    rows = views.flatten(1, 2)
    rows = (rows - rows.mean(dim=1, keepdim=True)).unflatten(2, (groups, -1)).transpose(1, 2)
    num_rows, dim = rows.shape[-2:]  # rows (B, G, M, D/G), M = V N
    dual = dim > num_rows and not detach
    fixed = rows.detach() if detach else rows
    # covariance (B, G, d, d) or Gram matrix (B, G, M, M), which has the same nonzero eigenvalues
    moment = (fixed @ fixed.mT if dual else fixed.mT @ fixed) / num_rows
    factor = factorize_moment(moment, dim, ridge)
    if dual:
        # H (H'H/M + r I)^-1 H' = (HH'/M + r I)^-1 HH', an M x M system instead of a d x d one
        return None, num_rows * torch.cholesky_solve(moment, factor.lower).sum(dim=1), factor
    white = torch.linalg.solve_triangular(factor.lower, rows.mT, upper=False).mT
    return white.transpose(1, 2).flatten(2), moment, factor
