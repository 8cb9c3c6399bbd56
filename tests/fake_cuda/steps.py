"""One optimizer step on pretend CUDA tensors, as the loops take it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.running.processes import Process
from tests.fake_cuda.pretend import CUDA, pretend_cuda
from tests.fake_cuda.watch import Watch, allowed_waits
from transfer.finetuning import loop
from transfer.finetuning.schedule import TrainingSchedule
from transfer.finetuning.state import Training
from transfer.finetuning.stream import Stream


@dataclass(frozen=True)
class Step:
    """A step's losses and metrics, and its operations on a GPU."""

    numbers: dict[str, Tensor]
    watch: Watch
    without_gradient: list[str]
    """Names of the trainable parameters without a gradient."""


def watch_step(network: nn.Module, take: Callable[[], object], *, true: bool = False) -> Step:
    """Return the step of a network that `take` makes, in `pretend_cuda`."""
    numbers: dict[str, Tensor] = {}

    def keep(_: nn.Module, __: object, output: dict[str, Tensor]) -> None:
        numbers.update(output)

    with network.register_forward_hook(keep), Watch(true=true) as watch:
        take()
    missing = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
    return Step(numbers, watch, missing)


def check_step(step: Step, measured: str, case: str = "") -> None:
    """Raise an AssertionError if a step would be wrong on a GPU."""
    kinds = {(number.dtype, number.device, number.shape) for number in step.numbers.values()}
    assert kinds == {(torch.float32, CUDA, ())}
    assert step.watch.faults == []  # half precision in a loss, collectives of other tensors
    assert step.without_gradient == []
    passes = step.watch.num_sync_norms
    assert step.watch.waits == allowed_waits(measured, case, num_passes=passes)


def take_fine_tuning_step(
    network: nn.Module,
    optimizer: Callable[[], torch.optim.SGD],
    schedule: TrainingSchedule,
    samples: Sequence[Any],
) -> Step:
    """Return one step of a network on samples.

    Network and samples are on the CPU before.

    optimizer: makes the optimizer after the network has moved to the device.
    """
    with pretend_cuda():
        network.to(CUDA).train()
        training = Training(
            network=network, optimizer=optimizer(), schedule=schedule, folder=Path("training")
        )
        process = Process(device=CUDA)
        stream = Stream(samples=samples, schedule=schedule, seed=0, process=process)  # type: ignore[arg-type]

        def take() -> None:
            batch = [sample.pin_memory().to(CUDA) for sample in samples]
            loop.step(stream, training, network, [batch])

        return watch_step(network, take, true=True)  # all is well: boxes are finite
