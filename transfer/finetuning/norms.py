"""Norm layers for training, and their precise statistics afterwards.

Precise statistics (Wu and Johnson, Rethinking "Batch" in BatchNorm, arXiv:2105.07576) are computed
from many batches with the final weights. They replace the moving averages of the training. As in
detectron2, each batch is weighted by its number of values.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.running.processes import Process, has_own_group
from transfer.finetuning.stream import Sample

Norm = Literal["BN", "SyncBN", "naiveSyncBN"]


def norm_for(
    synchronized: Literal["SyncBN", "naiveSyncBN"], device: torch.device, num_processes: int
) -> Norm:
    """Return plain BN for one process, otherwise a synchronized norm.

    Several CPU processes use naiveSyncBN, since torch's synchronized layer does not support CPUs.
    """
    if num_processes == 1:
        return "BN"
    return synchronized if device.type == "cuda" else "naiveSyncBN"


def norm_layer(norm: Norm) -> Callable[[int], nn.Module]:
    """Return the function that creates a layer for a number of channels."""
    return {
        "BN": nn.BatchNorm2d,
        "SyncBN": nn.SyncBatchNorm,
        "naiveSyncBN": NaiveSyncBatchNorm,
    }[norm]


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    """Batch norm over all processes, with equal weight for each process.

    This is detectron2's layer of the same name, which MoCo's VOC runs use. In contrast to torch's
    layer, it also runs on CPUs. It is exact only if all processes have the same number of values.
    As in detectron2, the running variances are biased; torch's layers multiply them by n / (n - 1),
    where n is the number of values per channel.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize maps (n, C, H, W) of the n images of this process."""
        if not (self.training and has_own_group() and dist.get_world_size() > 1):
            return super().forward(input)
        # float32, since squares overflow in half precision
        values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        moments = torch.cat([values.mean(dim=(0, 2, 3)), (values * values).mean(dim=(0, 2, 3))])
        mean, square = (sum_over_processes(moments) / dist.get_world_size()).chunk(2)
        variance = square - mean * mean
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        with torch.no_grad():
            for name, current in (("running_mean", mean), ("running_var", variance)):
                running = self.get_buffer(name)
                running += (self.momentum or 0.0) * (current - running)
        normalized: Tensor = values * scale[:, None, None] + shift[:, None, None]
        return normalized.to(input.dtype)


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the elementwise sum over all processes, with gradient.

    torch.distributed.nn has such a function, but it is deprecated.
    """
    total: Tensor = _AllReduce.apply(values)
    return total


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return _AllReduce.forward(ctx, gradient)


def set_precise_norms(
    network: nn.Module, batches: Iterable[Sequence[Sample]], process: Process
) -> None:
    """Compute the statistics of all norm layers from these batches.

    The network processes each batch once in training mode; weights do not change. If a layer is
    called several times, every call counts. A layer without input keeps its statistics.
    """
    layers = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    # count, sum and sum of squares of the input per channel (3, C); in double precision, since the
    # variance is a small difference of two large numbers
    sums = [
        layer.get_buffer("running_mean").new_zeros(3, layer.num_features, dtype=torch.float64)
        for layer in layers
    ]
    hooks = [
        layer.register_forward_pre_hook(partial(_add_input, total))
        for layer, total in zip(layers, sums, strict=True)
    ]
    network.train()
    with torch.no_grad():
        for batch in batches:
            network(batch)
    for layer, hook, total in zip(layers, hooks, sums, strict=True):
        hook.remove()
        if process.num_processes > 1:
            dist.all_reduce(total)
        if float(total[0, 0]):
            mean, square = total[1:] / total[0]
            layer.get_buffer("running_mean").copy_(mean)
            layer.get_buffer("running_var").copy_(square - mean.square())


def _add_input(total: Tensor, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Add a layer's input (n, C, ...) to count, sum and sum of squares."""
    values, dims = inputs[0], [0, *range(2, inputs[0].ndim)]
    total[0] += values.numel() // values.shape[1]
    total[1] += values.sum(dims, dtype=torch.float64)
    total[2] += values.square().sum(dims, dtype=torch.float64)
