"""Norm layers of a detector: which kind, decided here and nowhere else."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

from transfer.detection.recipe import Recipe

Norm = Literal["BN", "SyncBN", "naiveSyncBN"]


def norm_for(recipe: Recipe, device: torch.device, num_processes: int) -> Norm:
    """Plain in one process; what the recipe says on several GPUs.

    On several CPU processes, where torch's synchronized layer does not run, the naive one.
    """
    if num_processes == 1:
        return "BN"
    return recipe.synchronized_norm if device.type == "cuda" else "naiveSyncBN"


def norm_layer(norm: Norm) -> Callable[[int], nn.Module]:
    """Makes a layer of so many channels; for the torchvision engine."""
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
        mean, square = (all_reduce(moments) / dist.get_world_size()).chunk(2)
        variance = square - mean * mean
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        with torch.no_grad():
            _follow(self.running_mean, mean, self.momentum)
            _follow(self.running_var, variance, self.momentum)
        normalized: Tensor = values * scale[:, None, None] + shift[:, None, None]
        return normalized.to(input.dtype)


def _follow(running: Tensor | None, now: Tensor, momentum: float | None) -> None:
    if running is not None and momentum is not None:
        running += momentum * (now - running)


class ScaleGradient(torch.autograd.Function):
    """Identity whose gradient is scaled."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return input.view_as(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def scale_gradient(input: Tensor, factor: float) -> Tensor:
    """The same values; what flows back is multiplied by the factor."""
    scaled: Tensor = ScaleGradient.apply(input, factor)
    return scaled
