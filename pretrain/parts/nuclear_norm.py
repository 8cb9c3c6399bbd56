"""Sum of the singular values of many small matrices, without a singular value decomposition."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pretrain.parts.gather import num_processes


def nuclear_norm(matrices: Tensor) -> Tensor:
    """Sum of singular values, (n, M, d) -> (n,): float64 for float64 matrices, else float32.

    The gradient of Q = U S V' is U V', and where singular values are zero the subgradient of
    least norm, so it is finite everywhere. Rows of unit length: sqrt(M) if all are equal, M if
    they are orthonormal.
    """
    norms: Tensor = _NuclearNorm.apply(_at_least_float32(matrices), False)
    return norms


def joint_nuclear_norm(rows: Tensor) -> Tensor:
    """Nuclear norm of the matrix that the rows (m, d) of all processes make: a scalar.

    Its gradient is summed over processes, as in `gather_with_gradient`; only a d x d matrix and
    a number travel.
    """
    norms: Tensor = _NuclearNorm.apply(_at_least_float32(rows)[None], True)
    return norms[0]


def _at_least_float32(matrices: Tensor) -> Tensor:
    return matrices if matrices.dtype == torch.float64 else matrices.float()


class _NuclearNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrices: Tensor, joint: bool) -> Tensor:
        num_rows, num_columns = matrices.shape[1:]
        if joint:
            num_rows *= num_processes()
        on_columns = joint or num_rows > num_columns
        # squaring halves the digits: in float32 a zero eigenvalue of the Gram matrix would become
        # a singular value of up to 1e-3, and its inverse would ruin the gradient; autocast leaves
        # float64 alone
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
        # float32 is enough here: its error is that of U V' under the rounding of the rows
        weights = (gradient[:, None, None] * inverse_root).to(matrices.dtype)
        with torch.autocast(matrices.device.type, enabled=False):
            return (matrices @ weights if ctx.on_columns else weights @ matrices), None


def _root(gram: Tensor, cutoff: float) -> tuple[Tensor, Tensor]:
    """Trace (n,) and pseudo-inverse (n, r, r) of the square roots of Gram matrices (n, r, r).

    Eigenvalues up to `cutoff` times the largest are rounding and count as zero.
    """
    # eigh raises on what is not finite; the training loop wants to see it in the loss
    broken = ~gram.sum(dim=(1, 2)).isfinite()
    values, vectors = torch.linalg.eigh(gram.masked_fill(broken[:, None, None], 0))
    kept = values > cutoff * values[:, -1:]
    trace = values.where(kept, 0).sqrt().sum(dim=1).masked_fill(broken, torch.nan)
    scaled = vectors * values.where(kept, torch.inf).rsqrt()[:, None]
    return trace, scaled @ vectors.mT
