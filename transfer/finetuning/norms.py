"""The kind of norm layers in training, which only this module decides, and their statistics.

Statistics after training: Wu and Johnson, Rethinking "Batch" in BatchNorm, arXiv:2105.07576:
population statistics replace the moving average, at fixed weights. Each batch is weighted by its
number of values, as in detectron2.
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
    """Return the kind of norm: plain in one process, the recipe's synchronized one on several GPUs.

    Several CPU processes use the naive one, since torch's synchronized layer does not run on CPUs.
    """
    if num_processes == 1:
        return "BN"
    return synchronized if device.type == "cuda" else "naiveSyncBN"


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
    exact only if all processes have the same number of values. Running variances are biased as in
    detectron2, whose results the engines reproduce. torch's own layers, pre-training's too, correct
    them by n / (n - 1), with n the number of values of a channel.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize maps (n, C, H, W), n images of this process."""
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
            for name, now in (("running_mean", mean), ("running_var", variance)):
                running = self.get_buffer(name)
                running += (self.momentum or 0.0) * (now - running)
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


def set_precise_norms(
    network: nn.Module, batches: Iterable[Sequence[Sample]], process: Process
) -> None:
    """Set the statistics of all norm layers to those of these batches, over all processes.

    Each batch passes once through the network in training mode; no weight changes. If a layer is
    called several times in a pass, every call counts; a layer without any input keeps its own.
    """
    layers = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    # count, sums and sums of squares of the input per channel (3, C) over all batches; double,
    # since the variance is a small difference of two large numbers
    sums = [
        layer.get_buffer("running_mean").new_zeros(3, layer.num_features, dtype=torch.float64)
        for layer in layers
    ]
    notes = [
        layer.register_forward_hook(partial(_add_batch, total, process.num_processes))
        for layer, total in zip(layers, sums, strict=True)
    ]
    network.train()
    for layer in layers:
        layer.momentum = 1.0  # the running statistics are then those of the last batch
    with torch.no_grad():
        for batch in batches:
            network(batch)
    for layer, momentum, note, total in zip(layers, momenta, notes, sums, strict=True):
        layer.momentum = momentum
        note.remove()
        if process.num_processes > 1:
            dist.all_reduce(total)
        if float(total[0, 0]):
            mean, square = total[1:] / total[0]
            layer.get_buffer("running_mean").copy_(mean)
            layer.get_buffer("running_var").copy_(square - mean.square())


def _add_batch(
    total: Tensor,
    num_processes: int,
    layer: nn.Module,
    inputs: tuple[Tensor, ...],
    output: Tensor,
) -> None:
    """Add a batch to count, sums and sums of squares, from the layer's running statistics."""
    count = inputs[0].numel() // inputs[0].shape[1]
    if count:  # a pass without proposals gives box heads no values
        mean = layer.get_buffer("running_mean").double()
        variance = layer.get_buffer("running_var").double()
        # running variances of torch's layers have Bessel's correction, for all values they are of
        num_values = count * (num_processes if isinstance(layer, nn.SyncBatchNorm) else 1)
        if num_processes == 1 or not isinstance(layer, NaiveSyncBatchNorm):
            variance = variance * ((num_values - 1) / num_values)
        total += count * torch.stack([torch.ones_like(mean), mean, mean.square() + variance])
