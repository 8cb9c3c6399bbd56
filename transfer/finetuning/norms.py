"""The kind of norm layers in training, which only this module decides."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.running.processes import Process
from transfer.finetuning.schedule import TrainingSchedule

Norm = Literal["BN", "SyncBN", "naiveSyncBN"]


def norm_for(
    synchronized: Literal["SyncBN", "naiveSyncBN"], device: torch.device, num_processes: int
) -> Norm:
    """Return the kind of norm: plain in one process, the recipe's synchronized one on several GPUs.

    Several CPU processes use the naive one, since torch's synchronized layer does not run on CPUs.
    """
    if num_processes == 1:
        return "BN"
    return synchronized if device.type == "cuda" else "naiveSyncBN"


def images_per_norm(course: TrainingSchedule, norm: Norm, process: Process) -> int:
    """Return the number of images that a norm layer averages over in training."""
    shared = 1 if norm != "BN" else process.num_processes
    return course.batch_size // (course.accumulated * shared)


def norm_layer(norm: Norm) -> Callable[[int], nn.Module]:
    """Return the function that makes a layer for a number of channels."""
    return {
        "BN": nn.BatchNorm2d,
        "SyncBN": nn.SyncBatchNorm,
        "naiveSyncBN": NaiveSyncBatchNorm,
    }[norm]


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    """Batch norm over all processes by plain sums, with equal weight of each process.

    It is detectron2's layer of that name, which MoCo's VOC runs use; it also runs on CPUs. It is
    exact only if all processes have the same number of values. Running variances are biased, unlike
    those of torch's own layers, which are corrected by n / (n - 1).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize maps (n, C, H, W), n images of this process."""
        several = dist.is_initialized() and dist.get_world_size() > 1
        if not (several and self.training):
            return super().forward(input)
        if input.numel() == 0:
            raise ValueError(
                f"naiveSyncBN got {tuple(input.shape)} in one of {dist.get_world_size()} "
                f"processes, and each weighs the same: expected at least one value; take SyncBN"
            )
        # float32, since squares overflow in half precision
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        moments = torch.cat([values.mean(dim=(0, 2, 3)), (values * values).mean(dim=(0, 2, 3))])
        mean, square = (sum_over_processes(moments) / dist.get_world_size()).chunk(2)
        variance = square - mean * mean
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        with torch.no_grad():
            _follow(self.running_mean, mean, self.momentum)
            _follow(self.running_var, variance, self.momentum)
        normalized: Tensor = values * scale[:, None, None] + shift[:, None, None]
        return normalized.to(input.dtype)


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum over all processes in the shape of the values, with gradient.

    torch's own function is deprecated.
    """
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
