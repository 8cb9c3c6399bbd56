"""One optimizer step of fine-tuning, as its loop takes it, on pretend CUDA tensors."""

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
class FineTuningStep:
    """A step's losses and what it would do on a GPU."""

    losses: dict[str, Tensor]
    watch: Watch
    without_gradient: list[str]
    """Names of the parameters that learn but got no gradient."""


def take_fine_tuning_step(
    network: nn.Module,
    optimizer: Callable[[], torch.optim.SGD],
    course: TrainingSchedule,
    samples: Sequence[Any],
) -> FineTuningStep:
    """Return one step of a network on samples, all on the CPU before.

    optimizer: makes that of the network after its move to the device.
    """
    losses: dict[str, Tensor] = {}

    def keep(_: nn.Module, __: object, output: dict[str, Tensor]) -> None:
        losses.update(output)

    with pretend_cuda(), network.register_forward_hook(keep):
        network.to(CUDA).train()
        training = Training(
            network=network, optimizer=optimizer(), course=course, folder=Path("training")
        )
        process = Process(device=CUDA)
        stream = Stream(samples=samples, course=course, seed=0, process=process)  # type: ignore[arg-type]
        # all is well: boxes are finite
        with Watch(true=True) as watch:
            batch = [sample.pin_memory().to(CUDA) for sample in samples]
            loop.step(stream, training, network, [batch])
        learning = {n: p for n, p in network.named_parameters() if p.requires_grad}
    return FineTuningStep(losses, watch, [n for n, p in learning.items() if p.grad is None])


def check_step(step: FineTuningStep, measured: str, case: str = "") -> None:
    """Raise an AssertionError unless a step is as it should be on a GPU."""
    kinds = {(loss.dtype, loss.device, loss.shape) for loss in step.losses.values()}
    assert kinds == {(torch.float32, CUDA, ())}
    assert step.without_gradient == []
    assert step.watch.faults == []
    passes = step.watch.num_sync_norms
    assert step.watch.waits == allowed_waits(measured, case, num_passes=passes)
