"""Cosine similarities of whitened rows, and their traces.

Li et al., UniCLR, arXiv:2211.14516, eq. 2 to 4 and section 3.2. Inner products of whitened rows are
the same for every whitening matrix, so a Cholesky factor is enough; no matrix is inverted.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize


class Factor(NamedTuple):
    """Cholesky factors of B batches, with one or more matrices each."""

    lower: Tensor
    """(B, ..., m, m); the identity where the factorization failed."""
    ridge: Tensor
    """(B, ...), the numbers added to the diagonal."""
    succeeded: Tensor
    """(B,), whether all matrices of a batch were factorized."""

    def mask_failures(self, values: Tensor) -> Tensor:
        """Return values (B,), zeroed where the factorization failed.

        Batches with NaN rows give NaN.
        """
        return values.where(
            self.succeeded, 0 * self.ridge.detach().reshape(len(values), -1).sum(dim=1)
        )

    def metrics(self) -> dict[str, Tensor]:
        """Return an estimated maximum condition number and the number of failed batches."""
        diagonal = self.lower.detach().diagonal(dim1=-2, dim2=-1)
        return {
            "condition_number": (diagonal.amax(dim=-1) / diagonal.amin(dim=-1)).square().max(),
            "whitening_failures": (~self.succeeded).float().sum(),
        }


def factorize(matrix: Tensor, ridge: Tensor) -> Factor:
    """Return Cholesky factors of matrices plus a ridge.

    matrix (B, ..., m, m); ridge (B, ...) is multiplied by the identity.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    ridged = matrix + ridge[..., None, None] * identity
    lower, info = torch.linalg.cholesky_ex(ridged)
    failed = (info != 0) | ~lower.diagonal(dim1=-2, dim2=-1).isfinite().all(dim=-1)
    if failed.any():  # this waits for the device once per step
        # the identity, since a NaN would stay NaN in a gradient that is multiplied by zero
        lower = torch.linalg.cholesky(torch.where(failed[..., None, None], identity, ridged))
    return Factor(lower, ridge, ~failed.reshape(len(failed), -1).any(dim=1))


def second_moment(rows: Tensor, *, dual: bool) -> Tensor:
    """Return the covariance (B, ..., d, d) of centered rows, or their Gram matrix.

    rows (B, ..., M, d). The Gram matrix (dual) is (B, ..., M, M), also divided by M. Both have the
    same nonzero eigenvalues.
    """
    return (rows @ rows.mT if dual else rows.mT @ rows) / rows.shape[-2]


def factorize_moment(moment: Tensor, dim: int, ridge: float) -> Factor:
    """Return factors of moments (B, ..., m, m) plus a ridge.

    `ridge` is relative to the mean variance of the features.
    """
    variance = moment.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / dim
    return factorize(moment, ridge * variance)


def whitened_cosines(first: Tensor, second: Tensor, *, ridge: float) -> tuple[Tensor, Factor]:
    """Return cosines (B, N, N) of whitened rows of two views, and factors.

    The mean and the covariance are those of all 2N rows of a batch.

    Args:
        first: (B, N, D), one view of N images in each of B batches.
        second: (B, N, D), the other view.
        ridge: fraction of the mean variance that is added to the diagonal of the covariance, so the
            result does not depend on the scale.
    """
    white, inner, factor = _whiten(first, second, ridge)
    num_images = first.shape[1]
    if white is not None:
        unit = normalize(white, dim=2).unflatten(1, (2, num_images))
        return unit[:, 0] @ unit[:, 1].mT, factor
    length = inner.diagonal(dim1=-2, dim2=-1).clamp_min(1e-24).sqrt()
    cosines = inner / (length[:, :, None] * length[:, None, :])
    return cosines[:, :num_images, num_images:].contiguous(), factor


def whitened_trace(first: Tensor, second: Tensor, *, ridge: float) -> tuple[Tensor, Factor]:
    """Return the traces (B,) of whitened inner products of two views, and factors.

    A trace is the sum over N images of z_a' S^-1 z_b, where S is the covariance of all 2N centered
    rows plus the ridge; it is in [-N D, N D]. If S has no Cholesky factor, the trace and its
    gradient are zero. For the arguments see `whitened_cosines`.
    """
    white, inner, factor = _whiten(first, second, ridge)
    num_images = first.shape[1]
    if white is not None:
        traces = (white[:, :num_images] * white[:, num_images:]).sum(dim=(1, 2))
    else:
        products = inner[:, :num_images, num_images:]
        traces = products.diagonal(dim1=1, dim2=2).sum(dim=1)
    return factor.mask_failures(traces), factor


def _whiten(first: Tensor, second: Tensor, ridge: float) -> tuple[Tensor | None, Tensor, Factor]:
    """Return whitened rows (B, 2N, D) of both views, moments and factors.

    With fewer rows than features, return None and the inner products of the whitened rows instead.
    """
    rows = torch.cat([first, second], dim=1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    num_rows, dim = rows.shape[1:]
    dual = dim > num_rows
    moment = second_moment(rows, dual=dual)
    factor = factorize_moment(moment, dim, ridge)
    if dual:
        # H (H'H/M + r I)^-1 H' = (HH'/M + r I)^-1 HH', an M x M system instead of a d x d one
        return None, num_rows * torch.cholesky_solve(moment, factor.lower), factor
    white = torch.linalg.solve_triangular(factor.lower, rows.mT, upper=False).mT
    return white, moment, factor
