"""Sum of the singular values of many small matrices, without a singular value decomposition."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pretrain.parts.gather import num_processes
from pretrain.parts.losses import at_least_float32


def nuclear_norm(matrices: Tensor) -> Tensor:
    """Return the sum of singular values (n,) of matrices (n, M, d).

    float64 for float64 matrices, else float32. The gradient at Q = U S V' is U V', and where
    singular values are zero the subgradient of least norm, so it is always finite. M rows of unit
    length give sqrt(M) if all are equal and M if they are orthonormal.
    """
    norms: Tensor = _NuclearNorm.apply(at_least_float32(matrices), False)
    return norms


def joint_nuclear_norm(rows: Tensor) -> Tensor:
    """Return the nuclear norm of the matrix of all processes' rows (m, d): a scalar.

    Its gradient is summed over processes, as in `gather_with_gradient`. Processes exchange only a
    d x d matrix and a number.
    """
    norms: Tensor = _NuclearNorm.apply(at_least_float32(rows)[None], True)
    return norms[0]


class _NuclearNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrices: Tensor, joint: bool) -> Tensor:
        num_rows, num_columns = matrices.shape[1:]
        if joint:
            num_rows *= num_processes()
        on_columns = joint or num_rows > num_columns
        # float64, because squaring halves the digits: in float32 a zero eigenvalue of the Gram
        # matrix could give a singular value of 1e-3, whose inverse would ruin the gradient.
        # Autocast does not touch float64
        wide = matrices.double()
        gram = wide.mT @ wide if on_columns else wide @ wide.mT
        if joint and num_processes() > 1:
            dist.all_reduce(gram)
        rounding = max(torch.finfo(matrices.dtype).eps ** 2, torch.finfo(gram.dtype).eps)
        norms, inverse_root = _root(gram, max(num_rows, num_columns) * rounding)
        ctx.joint, ctx.on_columns = joint, on_columns
        ctx.save_for_backward(matrices, inverse_root)
        return norms.to(matrices.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        matrices, inverse_root = ctx.saved_tensors
        if ctx.joint and num_processes() > 1:
            gradient = gradient.clone()
            dist.all_reduce(gradient)
        # float32 suffices: the error is no larger than what rounding of the rows does to U V'
        weights = (gradient[:, None, None] * inverse_root).to(matrices.dtype)
        with torch.autocast(matrices.device.type, enabled=False):
            return (matrices @ weights if ctx.on_columns else weights @ matrices), None


def _root(gram: Tensor, cutoff: float) -> tuple[Tensor, Tensor]:
    """Return trace (n,) and pseudo-inverse (n, r, r) of the square roots of Grams (n, r, r).

    Eigenvalues up to `cutoff` times the largest are rounding errors and count as zero.
    """
    # eigh raises on what is not finite; the training loop reports it from the loss instead
    broken = ~gram.sum(dim=(1, 2)).isfinite()
    values, vectors = torch.linalg.eigh(gram.masked_fill(broken[:, None, None], 0))
    kept = values > cutoff * values[:, -1:]
    trace = values.where(kept, 0).sqrt().sum(dim=1).masked_fill(broken, torch.nan)
    scaled = vectors * values.where(kept, torch.inf).rsqrt()[:, None]
    return trace, scaled @ vectors.mT
