"""Statistics of norm layers, averaged over many batches at fixed weights.

Wu and Johnson, Rethinking "Batch" in BatchNorm, arXiv:2105.07576: population statistics replace the
moving average. Each batch is weighted by its number of values, as in detectron2.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.running.processes import Process
from transfer.finetuning.stream import Sample


class Population:
    """Count, sums and sums of squares of a norm layer's input, per channel over all batches."""

    def __init__(self, layer: _BatchNorm) -> None:
        mean = layer.get_buffer("running_mean")
        # double, since the variance is a small difference of two large numbers
        self.sums = torch.zeros(2, len(mean), dtype=torch.float64, device=mean.device)
        self.count = torch.zeros(1, dtype=torch.float64, device=mean.device)

    def add(self, layer: _BatchNorm, count: int) -> None:
        """Add a batch of `count` values per channel, from the layer's running statistics."""
        mean = layer.get_buffer("running_mean").double()
        variance = layer.get_buffer("running_var").double()
        # running variances of torch's layers have Bessel's correction
        square = mean.square() + variance * ((count - 1) / count)
        self.sums += count * torch.stack([mean, square])
        self.count += count

    def write(self, layer: _BatchNorm) -> None:
        """Write the statistics into the layer; a layer without any input keeps its own."""
        if float(self.count) == 0:
            return
        mean, square = self.sums / self.count
        layer.get_buffer("running_mean").copy_(mean)
        layer.get_buffer("running_var").copy_(square - mean.square())


def set_precise_norms(
    network: nn.Module, batches: Iterable[Sequence[Sample]], process: Process
) -> None:
    """Set the statistics of all norm layers to those of these batches, over all processes.

    Each batch passes once through the network in training mode; no weight changes. If a layer is
    called several times in a pass, every call counts.
    """
    layers = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    populations = [Population(layer) for layer in layers]
    momenta = [layer.momentum for layer in layers]
    notes = [
        layer.register_forward_hook(partial(_note, population))
        for layer, population in zip(layers, populations, strict=True)
    ]
    network.train()
    try:
        for layer in layers:
            layer.momentum = 1.0  # the running statistics are then those of the last batch
        with torch.no_grad():
            for batch in batches:
                network(batch)
    finally:
        for layer, momentum, note in zip(layers, momenta, notes, strict=True):
            layer.momentum = momentum
            note.remove()
    for layer, population in zip(layers, populations, strict=True):
        if process.num_processes > 1:
            dist.all_reduce(population.sums)
            dist.all_reduce(population.count)
        population.write(layer)


def _note(
    population: Population, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
) -> None:
    count = inputs[0].numel() // inputs[0].shape[1]
    if count and isinstance(
        layer, _BatchNorm
    ):  # a pass without proposals gives box heads no values
        population.add(layer, count)
