"""Batch norm over all processes by torch's fused kernels, with equally many rows on each.

It takes the place of nn.SyncBatchNorm, which allows other numbers of rows: that reads the gathered
counts and so waits for the device three times in each layer. A CPU has no such kernels, and torch's
compiler cannot look into them; for both each is a formula, which the compiler fuses.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.parts.gather import gather, num_processes
from pretrain.parts.losses import at_least_float32


class FusedBatchNorm(_BatchNorm):
    """Batch norm over the images of all processes; it waits for no device and needs a momentum."""

    momentum: float

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows (n, C, ...) normalized by the statistics of all N images."""
        if not self.training or num_processes() == 1:
            normalized: Tensor = super().forward(rows)
            return normalized
        running = self.running_mean, self.running_var
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        synchronous: Tensor = _Normalize.apply(
            rows, self.weight, self.bias, running, self.eps, self.momentum
        )
        return synchronous

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of axes."""


class _Normalize(torch.autograd.Function):
    """The kernels of nn.SyncBatchNorm, with counts that are known in place of gathered ones."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running: tuple[Tensor | None, Tensor | None],
        eps: float,
        momentum: float,
    ) -> Tensor:
        rows = _dense(rows, rows)
        stacked = gather(torch.cat(local_statistics(rows, eps))[None])
        mean, invstd = global_statistics(rows, stacked, running, momentum, eps)
        ctx.save_for_backward(rows, weight, mean, invstd)
        return normalize(rows, weight, bias, mean, invstd, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, mean, invstd = ctx.saved_tensors
        gradient = _dense(gradient, rows)
        needs = ctx.needs_input_grad[:3]
        sums, weight_gradient, bias_gradient = gradient_sums(
            gradient, rows, weight, mean, invstd, needs
        )
        rows_gradient = None
        if needs[0]:
            if num_processes() > 1:
                dist.all_reduce(sums)
            rows_gradient = input_gradient(gradient, rows, weight, mean, invstd, sums)
        if weight is None:
            return rows_gradient, None, None, None, None, None
        return (
            rows_gradient,
            weight_gradient if needs[1] else None,
            bias_gradient if needs[2] else None,
            *(None, None, None),
        )


def has_kernels(rows: Tensor) -> bool:
    """Return whether the kernels serve rows: on a GPU, and not in a graph that is compiled."""
    return rows.is_cuda and not torch.compiler.is_compiling()


def local_statistics(rows: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / sqrt(variance + eps), (C,) each, of this process's rows (n, C, ...)."""
    if has_kernels(rows):
        return torch.batch_norm_stats(rows, eps)
    variance, mean = torch.var_mean(at_least_float32(rows), _others(rows), correction=0)
    return mean, (variance + eps).rsqrt()


def global_statistics(
    rows: Tensor,
    stacked: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return mean and 1 / sqrt(variance + eps), (C,) each, over processes; update the running ones.

    stacked (P, 2 C) are the local statistics of the P processes, which have as many rows each.
    """
    num_rows = rows.numel() // rows.shape[1]
    means, invstds = stacked.chunk(2, dim=1)
    running_mean, running_var = running
    if has_kernels(rows):
        # the kernel reads the counts in the type of the running statistics, or else of the rows
        dtype = rows.dtype if running_mean is None else running_mean.dtype
        counts = torch.full((len(stacked),), num_rows, dtype=dtype, device=rows.device)
        return torch.batch_norm_gather_stats_with_counts(
            rows, means, invstds, running_mean, running_var, momentum, eps, counts
        )
    mean = means.mean(dim=0)
    within = (invstds.reciprocal().square() - eps).mean(dim=0)
    variance = within + means.var(dim=0, correction=0)
    if running_mean is not None and running_var is not None:
        total = num_rows * len(stacked)
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def normalize(
    rows: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    """Return (rows - mean) * invstd * weight + bias, of the rows' type (n, C, ...)."""
    if has_kernels(rows):
        return torch.batch_norm_elemt(rows, weight, bias, mean, invstd, eps)
    normalized = (at_least_float32(rows) - _column(mean, rows)) * _column(invstd, rows)
    if weight is not None:
        normalized = normalized * _column(weight, rows)
    if bias is not None:
        normalized = normalized + _column(bias, rows)
    return normalized.to(rows.dtype)


def gradient_sums(
    gradient: Tensor,
    rows: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    needs: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the sums (2 C,) of g and g * (rows - mean) over own rows, weight and bias gradient.

    g is the gradient (n, C, ...) of the output; needs tells which gradients are asked for.
    """
    if has_kernels(rows):
        total, moment, weight_gradient, bias_gradient = torch.batch_norm_backward_reduce(
            gradient, rows, mean, invstd, weight, *needs
        )
        sums = torch.cat([total, moment]) if needs[0] else total
        return sums, weight_gradient, bias_gradient
    precise = at_least_float32(gradient)
    total = precise.sum(_others(rows))
    moment = (precise * (at_least_float32(rows) - _column(mean, rows))).sum(_others(rows))
    if weight is None:
        return torch.cat([total, moment]), None, None
    return torch.cat([total, moment]), (moment * invstd).to(weight.dtype), total.to(weight.dtype)


def input_gradient(
    gradient: Tensor,
    rows: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    sums: Tensor,
) -> Tensor:
    """Return the gradient (n, C, ...) of own rows from the sums (2 C,) over all processes."""
    num_rows = rows.numel() // rows.shape[1]
    total, moment = sums.chunk(2)
    if has_kernels(rows):
        shape = (num_processes(),)
        counts = torch.full(shape, num_rows, dtype=torch.int32, device=rows.device)
        return torch.batch_norm_backward_elemt(
            gradient, rows, mean, invstd, weight, total, moment, counts
        )
    count = num_rows * num_processes()
    slope = _column(moment * invstd.square() / count, rows)
    centered = at_least_float32(rows) - _column(mean, rows)
    changed = at_least_float32(gradient) - _column(total / count, rows) - centered * slope
    scale = invstd if weight is None else invstd * weight
    return (changed * _column(scale, rows)).to(rows.dtype)


def _dense(values: Tensor, rows: Tensor) -> Tensor:
    """Return values in the memory layout of the rows, channels last or contiguous."""
    if rows.ndim == 4 and rows.is_contiguous(memory_format=torch.channels_last):
        return values.contiguous(memory_format=torch.channels_last)
    return values.contiguous()


def _others(rows: Tensor) -> list[int]:
    return [axis for axis in range(rows.ndim) if axis != 1]


def _column(values: Tensor, rows: Tensor) -> Tensor:
    """Return values (C,) in a shape that multiplies rows (n, C, ...)."""
    return values.view([1, -1] + [1] * (rows.ndim - 2))
