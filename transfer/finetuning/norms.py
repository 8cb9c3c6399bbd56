"""Norm layers of a network in training: which kind, decided here and nowhere else."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transfer.finetuning.schedule import Course
from transfer.running.processes import Process

Norm = Literal["BN", "SyncBN", "naiveSyncBN"]


def norm_for(
    synchronized: Literal["SyncBN", "naiveSyncBN"], device: torch.device, num_processes: int
) -> Norm:
    """Plain in one process; the synchronized one that the recipe says on several GPUs.

    On several CPU processes, where torch's synchronized layer does not run, the naive one.
    """
    if num_processes == 1:
        return "BN"
    return synchronized if device.type == "cuda" else "naiveSyncBN"


def images_per_norm(course: Course, norm: Norm, process: Process) -> int:
    """Over how many images a norm layer averages in training."""
    shared = 1 if norm != "BN" else process.num_processes
    return course.batch_size // (course.accumulated * shared)


def norm_layer(norm: Norm) -> Callable[[int], nn.Module]:
    """Makes a layer of so many channels."""
    return {
        "BN": nn.BatchNorm2d,
        "SyncBN": nn.SyncBatchNorm,
        "naiveSyncBN": NaiveSyncBatchNorm,
    }[norm]


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    """Batch norm over all processes by plain sums, each process weighing the same.

    The layer of that name in detectron2, which MoCo's VOC runs use; it also runs on CPUs. Exact
    only where all processes have as many values. Running variances are the biased ones, of the
    batch as it is, where torch's own layers correct them by n / (n - 1).
    """

    def forward(self, input: Tensor) -> Tensor:
        """(n, C, H, W), n of this process."""
        several = dist.is_initialized() and dist.get_world_size() > 1
        if not (several and self.training):
            return super().forward(input)
        if input.numel() == 0:
            raise ValueError(
                f"naiveSyncBN got {tuple(input.shape)} in one of {dist.get_world_size()} "
                f"processes, and each weighs the same: expected at least one value; take SyncBN"
            )
        # squares overflow in half precision
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        moments = torch.cat([values.mean(dim=(0, 2, 3)), (values * values).mean(dim=(0, 2, 3))])
        mean, square = (summed(moments) / dist.get_world_size()).chunk(2)
        variance = square - mean * mean
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        with torch.no_grad():
            _follow(self.running_mean, mean, self.momentum)
            _follow(self.running_var, variance, self.momentum)
        normalized: Tensor = values * scale[:, None, None] + shift[:, None, None]
        return normalized.to(input.dtype)


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, with gradient; torch's own is deprecated."""
    total: Tensor = _Summed.apply(values)
    return total


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return _Summed.forward(ctx, gradient)


def _follow(running: Tensor | None, now: Tensor, momentum: float | None) -> None:
    if running is not None and momentum is not None:
        running += momentum * (now - running)
