"""The training loop of detection (both engines), segmentation and classification.

An iteration only depends on its number, the seed and the previous state. A resumed training
therefore gives the same result as an uninterrupted one.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pretrain.running import stop
from pretrain.running.console import print_line, progress
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import Process, any_process
from pretrain.running.torch_versions import data_parallel
from transfer.finetuning.norms import set_precise_norms
from transfer.finetuning.schedule import Precision, learning_rate, set_learning_rate
from transfer.finetuning.state import Training, restore, save
from transfer.finetuning.stream import Sample, Samples, Stream
from transfer.frozen.network import limit_workspaces

READ_EVERY = 20
"""Iterations between reads of the losses; each read waits for the device."""
SAVE_EVERY_S = 300
ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def move_to_device(network: nn.Module, device: torch.device) -> None:
    """Move a network to its device, channels-last on a GPU.

    On a CPU, the layout is unchanged, as in this suite's published results.
    """
    network.to(device)
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)


def fused(network: nn.Module, precision: Precision) -> bool | None:
    """Return SGD's option `fused`: True on a GPU, otherwise torch's default.

    Also the default with float16: if the gradients of the first step overflow, the fused kernel
    returns before it sets the momentum, which torch has allocated but not initialized.
    """
    return True if next(network.parameters()).is_cuda and precision != "float16" else None


@contextmanager
def measured_convolutions(device: torch.device, *, one_size: bool) -> Iterator[None]:
    """Let cudnn benchmark its algorithms if all images have one size.

    With many sizes, cudnn would benchmark repeatedly.
    """
    limit_workspaces()
    earlier = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = earlier or (device.type == "cuda" and one_size)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = earlier


def use_expandable_segments() -> None:
    """Use expandable segments, against fragmentation of GPU memory.

    It must be called before CUDA is initialized. Settings of the user are kept.
    """
    if not any(name in os.environ for name in ALLOCATOR_VARIABLES):
        os.environ[ALLOCATOR_VARIABLES[0]] = "expandable_segments:True"


def train(
    training: Training,
    samples: Samples[Sample],
    *,
    seed: int,
    process: Process,
    one_size: bool = False,
) -> None:
    """Train a network (on its device), then compute precise norm statistics.

    Called with a list of samples, the network returns the losses to sum, by name. Each training has
    its own folder. An interrupted call, repeated with the same arguments, gives the same weights. A
    finished training is only loaded. Raises NotFiniteError if it diverges, Stopped after a signal.
    one_size: whether all samples have the same size, so that cudnn may benchmark its algorithms.
    """
    schedule = training.schedule
    if schedule.precision == "float16" and process.device.type != "cuda":
        raise ValueError(
            f"float16 needs a CUDA device, found {process.device.type}; use bfloat16 or float32"
        )
    stream = Stream(samples=samples, schedule=schedule, seed=seed, process=process)
    training.network.train()
    problem = restore(training)
    any_process([False], process)  # wait until all processes have read, before one writes
    if process.is_main and training.iteration:
        print_line("train", f"{training.name}  resuming after iteration {training.iteration}")
    elif process.is_main and problem:
        warning = f"{training.file} {problem}: the training starts again"
        print_line("train", f"{training.name}  {warning}")
    with measured_convolutions(process.device, one_size=one_size):
        _iterate(stream, training)
    if not training.finished:
        if count := schedule.precise_norm_batches:
            if process.is_main:
                print_line("norms", f"{training.name}  statistics over {count} batches")
            batches = _norm_batches(stream, count)
            try:
                set_precise_norms(training.network, batches, process)
            except FloatingPointError as error:
                raise _not_finite(training, [], str(error)) from error
        training.finished = True
        if process.is_main:
            save(training)
    training.network.eval()


def _iterate(stream: Stream, training: Training) -> None:
    """Run all remaining steps."""
    schedule, process, total = stream.schedule, stream.process, stream.schedule.iterations
    first, size, network = training.iteration, schedule.batch_size, training.network
    if first == total:
        return
    if process.num_processes > 1:
        network = data_parallel(network, process.device)
    batches = stream.batches(range(first * schedule.accumulated, total * schedule.accumulated))
    saved_s = time.monotonic()
    counting = progress("train", training.name, total * size, "images", first * size)
    with counting if process.is_main else nullcontext() as counter:
        for iteration in range(first + 1, total + 1):
            try:
                step(stream, training, network, islice(batches, schedule.accumulated))
            except FloatingPointError as error:
                # both engines raise it for proposals that are not finite; an earlier, unread
                # iteration may have diverged
                raise _not_finite(training, training.unread, str(error)) from error
            training.iteration = iteration
            is_read_due = iteration == total or iteration % READ_EVERY == 0
            # processes only communicate when they wait for their devices anyway
            if not is_read_due and process.num_processes > 1:
                continue
            is_save_due = iteration == total or time.monotonic() - saved_s > SAVE_EVERY_S
            is_stop_requested, is_save_due = any_process(
                [stop.is_requested(), is_save_due], process
            )
            # always before a save, so that a diverged state is never saved
            if is_read_due or is_stop_requested or is_save_due:
                _read_losses(training, process)
            if counter is not None:
                loss = f"  loss {training.losses[-1][-1].sum():.3f}" if training.losses else ""
                counter.subject = f"{training.name}  iteration {iteration}/{total}{loss}"
                counter.add(iteration * size - counter.done)
            if is_stop_requested or is_save_due:
                _check_weights(training, process)
                if process.is_main:
                    save(training)
                saved_s = time.monotonic()
            if is_stop_requested:
                _stop_together(process)


def step(
    stream: Stream, training: Training, network: nn.Module, micro_batches: Iterable[list[Sample]]
) -> None:
    """Run one optimizer step.

    Its losses stay on the device and are read later.
    """
    schedule, device = training.schedule, stream.process.device.type
    dtype = torch.float16 if schedule.precision == "float16" else torch.bfloat16
    set_learning_rate(training.optimizer, learning_rate(schedule, training.iteration))
    training.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    for number, samples in enumerate(micro_batches):
        stream.seed_micro_batch(training.iteration * schedule.accumulated + number)
        is_last = number + 1 == schedule.accumulated
        # gradients are only averaged in the step's last micro-batch
        is_local = isinstance(network, DistributedDataParallel) and not is_last
        with cast("DistributedDataParallel", network).no_sync() if is_local else nullcontext():
            with torch.autocast(device, dtype, enabled=schedule.precision != "float32"):
                losses: dict[str, Tensor] = network(samples)
            total = torch.stack([loss.float() for loss in losses.values()]).sum()
            training.scaler.scale(total / schedule.accumulated).backward()
        for name, loss in losses.items():
            value = loss.detach().float() / schedule.accumulated
            sums[name] = sums[name] + value if name in sums else value
    training.scaler.step(training.optimizer)
    training.scaler.update()
    training.names = tuple(sorted(sums))
    training.unread.append(torch.stack([sums[name] for name in training.names]))


def _norm_batches(stream: Stream, count: int) -> Iterator[list[Sample]]:
    first = stream.schedule.iterations * stream.schedule.accumulated
    for number, batch in enumerate(stream.batches(range(first, first + count))):
        if number % READ_EVERY == 0 and any_process([stop.is_requested()], stream.process)[0]:
            _stop_together(stream.process)
        stream.seed_micro_batch(first + number)
        yield batch


def _read_losses(training: Training, process: Process) -> None:
    """Copy the losses from the device. Raises NotFiniteError if one is not finite."""
    losses = torch.stack(training.unread)
    if process.num_processes > 1:
        dist.all_reduce(losses)
        losses /= process.num_processes
    losses = losses.cpu()
    if not bool(losses.isfinite().all()):
        raise _not_finite(training, list(losses), "")
    training.losses.append(losses)
    training.unread.clear()


def _check_weights(training: Training, process: Process) -> None:
    """Raise NotFiniteError if a weight is not finite; losses do not show it after the last step."""
    weights = dict(training.network.named_parameters())
    are_finite = torch.stack([weight.isfinite().all() for weight in weights.values()]).tolist()
    bad = [name for name, is_finite in zip(weights, are_finite, strict=True) if not is_finite]
    if any_process([bool(bad)], process)[0]:
        saved = training.file if training.file.exists() else "none"
        raise NotFiniteError(
            f"{training.name}: iteration {training.iteration} of {training.schedule.iterations}: "
            f"weights are not finite ({', '.join(bad[:3])}); last good state: {saved}. Check the "
            f"backbone, lower the learning rate {training.schedule.learning_rate:g}, or train in "
            "float32"
        )


def _not_finite(training: Training, unread: list[Tensor], engine_message: str) -> NotFiniteError:
    """Return an error that names the first bad iteration.

    unread: losses (number of losses,) of each iteration since the last read.
    """
    values = engine_message
    # the pass for norm statistics follows the last iteration
    iteration = min(training.iteration + 1, training.schedule.iterations)
    for number, losses in enumerate(unread, start=training.iteration - len(training.unread) + 1):
        if not bool(losses.isfinite().all()):
            pairs = zip(training.names, losses.tolist(), strict=True)
            values, iteration = ", ".join(f"{name} {value:g}" for name, value in pairs), number
            break
    saved = training.file if training.file.exists() else "none"
    return NotFiniteError(
        f"{training.name}: iteration {iteration} of {training.schedule.iterations}: a loss is not "
        f"finite ({values}); last good state: {saved}. Check the backbone, lower the learning rate "
        f"{training.schedule.learning_rate:g}, or train in float32"
    )


def _stop_together(process: Process) -> None:
    any_process([True], process)  # wait for processes that still write
    raise stop.Stopped(stop.EXIT_RESUMABLE)
