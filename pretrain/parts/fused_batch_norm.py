"""Batch norm over all processes by torch's fused kernels, with equally many rows on each.

It takes the place of nn.SyncBatchNorm, which allows other numbers of rows: that reads the gathered
counts and so waits for the device three times in each layer. A CPU has no such kernels, and torch's
compiler cannot look into them; for both there is a formula, which the compiler fuses.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.parts.gather import gather, gather_with_gradient, num_processes
from pretrain.parts.losses import at_least_float32


class FusedBatchNorm(_BatchNorm):
    """Batch norm over the images of all processes; it waits for no device.

    It has running statistics and a momentum.
    """

    momentum: float
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows (n, C, ...) normalized by the statistics of all N images."""
        if not self.training or num_processes() == 1:
            normalized: Tensor = super().forward(rows)
            return normalized
        self.num_batches_tracked.add_(1)
        if not has_kernels(rows):
            return self._by_formula(rows)
        running = self.running_mean, self.running_var
        fused: Tensor = _Normalize.apply(
            rows, self.weight, self.bias, running, self.eps, self.momentum
        )
        return fused

    def _by_formula(self, rows: Tensor) -> Tensor:
        """Return the same where there are no kernels, of the rows' type."""
        precise = at_least_float32(rows)
        others = [axis for axis in range(rows.ndim) if axis != 1]
        moments = torch.stack(torch.var_mean(precise, others, correction=0))
        variances, means = gather_with_gradient(moments[None]).unbind(dim=1)
        mean = means.mean(dim=0)
        variance = variances.mean(dim=0) + means.var(dim=0, correction=0)
        total = len(means) * rows.numel() // rows.shape[1]
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = (variance * total / (total - 1)).to(self.running_var.dtype)
            self.running_var.lerp_(unbiased, self.momentum)
        shape = [1, -1] + [1] * (rows.ndim - 2)
        invstd = (variance + self.eps).rsqrt()
        normalized = (precise - mean.view(shape)) * invstd.view(shape)
        if self.affine:
            normalized = normalized * self.weight.view(shape) + self.bias.view(shape)
        return normalized.to(rows.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of axes."""


def has_kernels(rows: Tensor) -> bool:
    """Return whether the kernels serve rows: on a GPU, and not in a graph that is compiled."""
    return rows.is_cuda and not torch.compiler.is_compiling()


class _Normalize(torch.autograd.Function):
    """The kernels of nn.SyncBatchNorm, with counts that are known in place of gathered ones."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running: tuple[Tensor, Tensor],
        eps: float,
        momentum: float,
    ) -> Tensor:
        rows = _dense(rows, rows)
        own = torch.cat(torch.batch_norm_stats(rows, eps))
        stacked = gather(own[None])
        means, invstds = stacked.chunk(2, dim=1)
        # the kernel reads the counts in the type of the running statistics
        counts = torch.full(
            (len(stacked),), _per_channel(rows), dtype=running[0].dtype, device=rows.device
        )
        mean, invstd = torch.batch_norm_gather_stats_with_counts(
            rows, means, invstds, *running, momentum, eps, counts
        )
        ctx.save_for_backward(rows, weight, mean, invstd)
        return torch.batch_norm_elemt(rows, weight, bias, mean, invstd, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, mean, invstd = ctx.saved_tensors
        gradient = _dense(gradient, rows)
        needs = ctx.needs_input_grad[:3]
        total, moment, weight_gradient, bias_gradient = torch.batch_norm_backward_reduce(
            gradient, rows, mean, invstd, weight, *needs
        )
        rows_gradient = None
        if needs[0]:
            sums = torch.cat([total, moment])
            dist.all_reduce(sums)
            total, moment = sums.chunk(2)
            shape = (num_processes(),)
            counts = torch.full(shape, _per_channel(rows), dtype=torch.int32, device=rows.device)
            rows_gradient = torch.batch_norm_backward_elemt(
                gradient, rows, mean, invstd, weight, total, moment, counts
            )
        return rows_gradient, weight_gradient, bias_gradient, None, None, None


def _per_channel(rows: Tensor) -> int:
    """Return how many numbers of rows (n, C, ...) a channel has."""
    return rows.numel() // rows.shape[1]


def _dense(values: Tensor, rows: Tensor) -> Tensor:
    """Return values in the memory layout of the rows, channels last or contiguous."""
    if rows.ndim == 4 and rows.is_contiguous(memory_format=torch.channels_last):
        return values.contiguous(memory_format=torch.channels_last)
    return values.contiguous()
