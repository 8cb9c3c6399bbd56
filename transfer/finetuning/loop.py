"""The training loop of detectors of both engines, segmentation and classification.

An iteration depends only on its number, the seed and the state before it, so a resumed training
equals an uninterrupted one.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice

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
from transfer.finetuning.schedule import learning_rate, set_rate
from transfer.finetuning.state import Training, restore, save
from transfer.finetuning.stream import Sample, Samples, Stream, images_per_pass

READ_EVERY = 20
"""Iterations between reads of the losses, each of which waits for the device."""
SAVE_EVERY_S = 300
ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
WORKSPACE_VARIABLE, WORKSPACE_MB = "CUDNN_CONV_WSCAP_DBG", "8192"
"""Environment variable (PyTorch's notes on CUDA list it) and limit of a convolution's workspace.

torch offers cudnn all free memory and keeps the fastest algorithm, however much memory it takes: on
an H200 voc12_seg_fcn in float32 took 79 GB, in bfloat16 5.8. TensorFlow's limit is 8 GB, too
(tensorflow#56055). The effect of ours is not measured."""


def place(network: nn.Module, device: torch.device) -> None:
    """Move a network to its device; on a GPU its convolutions get the layout of tensor cores.

    A CPU keeps the layout and the kernels that the published runs of this suite were proven with.
    """
    network.to(device)
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)


def fused(network: nn.Module) -> bool | None:
    """Return SGD's option `fused`: one kernel for all weights on a GPU, torch's choice elsewhere.

    With float16 it also checks the gradients on the device, where others wait for it.
    """
    return True if next(network.parameters()).is_cuda else None


@contextmanager
def measured_convolutions(device: torch.device, *, one_size: bool) -> Iterator[None]:
    """Let cudnn measure its algorithms within the context, if all images have one size.

    With images of many sizes it would measure again and again.
    """
    limit_workspaces()
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or (device.type == "cuda" and one_size)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def limit_workspaces() -> None:
    """Limit the memory of a convolution's algorithm; what the user has set stays."""
    os.environ.setdefault(WORKSPACE_VARIABLE, WORKSPACE_MB)


def use_expandable_segments() -> None:
    """Let a GPU's memory grow in place, so that images of many sizes do not cut it to pieces.

    It has an effect until CUDA starts in this process. What the user has set stays.
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
    """Train a network, which is on its device, and make its norms' statistics precise.

    Called with a list of samples, the network returns the losses to sum, by name. The training's
    folder belongs to it alone. An interrupted call, repeated with the same arguments, ends with the
    same weights; a finished training is only loaded. NotFiniteError if it diverges, Stopped after a
    signal.
    one_size: whether all samples have the same size, for which a GPU may measure its algorithms.
    """
    course = training.course
    images_per_pass(course, process)  # ValueError if the batch does not divide
    if course.precision == "float16" and process.device.type != "cuda":
        raise ValueError(
            f"float16 needs a CUDA device, found {process.device.type}; take bfloat16 or float32"
        )
    stream = Stream(samples=samples, course=course, seed=seed, process=process)
    training.network.train()
    problem = restore(training)
    any_process([False], process)  # all have read before the first one may write
    if process.is_main and training.iteration:
        print_line("train", f"{training.name}  going on after iteration {training.iteration}")
    elif process.is_main and problem:
        told = f"{training.file} {problem}: the training starts anew"
        print_line("train", f"{training.name}  {told}")
    with measured_convolutions(process.device, one_size=one_size):
        _iterate(stream, training)
    if not training.finished:
        _make_norms_precise(stream, training)
    training.network.eval()


def _iterate(stream: Stream, training: Training) -> None:
    """Make all steps that are left."""
    course, process, total = stream.course, stream.process, stream.course.iterations
    first, size, name = training.iteration, course.batch_size, training.name
    if first == total:
        return
    network = _wrapped(training.network, process)
    batches = stream.batches(range(first * course.accumulated, total * course.accumulated))
    saved_s = time.monotonic()
    counting = progress("train", name, total * size, "images", first * size)
    with counting if process.is_main else nullcontext() as counter:
        for done in range(first + 1, total + 1):
            try:
                step(stream, training, network, islice(batches, course.accumulated))
            except FloatingPointError as error:
                # both engines raise it for proposals that are not finite; the diverged iteration
                # may be an earlier, unread one
                raise _not_finite(training, training.unread, str(error)) from error
            training.iteration = done
            reading = done == total or done % READ_EVERY == 0
            # several processes communicate only where they wait for their devices anyway
            if not reading and process.num_processes > 1:
                continue
            due = time.monotonic() - saved_s > SAVE_EVERY_S
            stopping, due = any_process([stop.is_requested(), due], process)
            # always before a save: the state of a training that has diverged must not be stored
            if reading or stopping or due:
                _read_losses(training, process)
            if counter is not None:
                losses = training.losses
                loss = f"  loss {float(losses[-1][-1].sum()):.3f}" if losses else ""
                counter.subject = f"{name}  iteration {done}/{total}{loss}"
                counter.add(done * size - counter.done)
            if done == total or stopping or due:
                if process.is_main:
                    save(training)
                saved_s = time.monotonic()
            if stopping:
                _stop_together(process)


def step(
    stream: Stream, training: Training, network: nn.Module, passes: Iterable[list[Sample]]
) -> None:
    """Make one optimizer step; its losses stay on the device and are read later."""
    course, device = training.course, stream.process.device.type
    dtype = torch.float16 if course.precision == "float16" else torch.bfloat16
    set_rate(training.optimizer, learning_rate(course, training.iteration))
    training.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    for number, samples in enumerate(passes):
        stream.seed_draws(training.iteration * course.accumulated + number)
        own: AbstractContextManager[None] = nullcontext()
        if isinstance(network, DistributedDataParallel) and number + 1 < course.accumulated:
            own = network.no_sync()  # gradients stay in their process until the step's last pass
        with own:
            with torch.autocast(device, dtype, enabled=course.precision != "float32"):
                losses: dict[str, Tensor] = network(samples)
            total = torch.stack([loss.float() for loss in losses.values()]).sum()
            training.scaler.scale(total / course.accumulated).backward()
        for name, loss in losses.items():
            part = loss.detach().float() / course.accumulated
            sums[name] = sums[name] + part if name in sums else part
    training.scaler.step(training.optimizer)
    training.scaler.update()
    training.names = tuple(sorted(sums))
    training.unread.append(torch.stack([sums[name] for name in training.names]))


def _wrapped(network: nn.Module, process: Process) -> nn.Module:
    if process.num_processes == 1:
        return network
    return data_parallel(network, process.device)


def _make_norms_precise(stream: Stream, training: Training) -> None:
    """Average the norms' statistics over the batches that would come next, and save the weights."""
    if count := stream.course.precise_norm_batches:
        if stream.process.is_main:
            print_line("norms", f"{training.name}  statistics over {count} batches")
        set_precise_norms(training.network, _norm_batches(stream, count), stream.process)
    training.finished = True
    if stream.process.is_main:
        save(training)


def _norm_batches(stream: Stream, count: int) -> Iterator[list[Sample]]:
    first = stream.course.iterations * stream.course.accumulated
    for number, batch in enumerate(stream.batches(range(first, first + count))):
        if number % READ_EVERY == 0 and any_process([stop.is_requested()], stream.process)[0]:
            _stop_together(stream.process)
        stream.seed_draws(first + number)
        yield batch


def _read_losses(training: Training, process: Process) -> None:
    """Copy the losses from the device; NotFiniteError in every process if one is not finite."""
    losses = torch.stack(training.unread)
    if process.num_processes > 1:
        dist.all_reduce(losses)
        losses /= process.num_processes
    losses = losses.cpu()
    if not bool(losses.isfinite().all()):
        raise _not_finite(training, list(losses), "")
    training.losses.append(losses)
    training.unread.clear()


def _not_finite(training: Training, unread: list[Tensor], engine_says: str) -> NotFiniteError:
    """Return an error that names the first bad iteration.

    unread: losses of the iterations since the last read, (number of losses,) each.
    """
    bad = [number for number, losses in enumerate(unread) if not bool(losses.isfinite().all())]
    values, iteration = engine_says, training.iteration + 1
    if bad:
        pairs = zip(training.names, unread[bad[0]].tolist(), strict=True)
        values = ", ".join(f"{name} {value:g}" for name, value in pairs)
        iteration = training.iteration - len(training.unread) + bad[0] + 1
    known = training.file.exists()
    kept = f"the last good state is {training.file}" if known else "no state was saved yet"
    return NotFiniteError(
        f"{training.name}: iteration {iteration} of {training.course.iterations}: a loss is not "
        f"finite ({values}); {kept}. Check the backbone, lower the learning rate "
        f"{training.course.learning_rate:g}, or train in float32"
    )


def _stop_together(process: Process) -> None:
    any_process([True], process)  # no process ends while another one still writes
    raise stop.Stopped(stop.EXIT_RESUMABLE)
