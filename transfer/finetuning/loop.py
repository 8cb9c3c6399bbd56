"""The training loop of detectors of both engines, segmentation and classification.

An iteration depends only on its number, the seed and the state before it, so a resumed training
equals an uninterrupted one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pretrain.running import stop
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import Process, any_process
from transfer.datasets.unchanged import UnprovenFile, prove_if_cheap, proving
from transfer.finetuning.gpu import measured_convolutions
from transfer.finetuning.norms import set_precise_norms
from transfer.finetuning.schedule import TrainingSchedule, learning_rate, set_rate
from transfer.finetuning.state import Training, TrainingSummary, restore, save, summary
from transfer.finetuning.stream import Sample, Samples, images_per_pass, training_batches
from transfer.frozen.extraction import num_workers as usual_workers
from transfer.running.console import Progress, print_line, progress

READ_EVERY = 20
"""Iterations between reads of the losses, each of which waits for the device."""
SAVE_EVERY_S = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """All inputs of one training."""

    samples: Samples[Sample]
    course: TrainingSchedule
    seed: int
    saved: UnprovenFile
    process: Process
    num_workers: int
    name: str

    def batches(self, iterations: range, passes: int) -> Iterator[list[Sample]]:
        """Yield the batches of these iterations, `passes` of them each, on the device."""
        loaded = training_batches(
            self.samples,
            self.course,
            seed=self.seed,
            process=self.process,
            passes=range(iterations.start * passes, iterations.stop * passes),
            num_workers=self.num_workers,
        )
        for batch in loaded:
            yield [sample.to(self.process.device) for sample in batch]


def train(
    network: nn.Module,
    optimizer: torch.optim.SGD,
    samples: Samples[Sample],
    course: TrainingSchedule,
    *,
    seed: int,
    folder: Path,
    process: Process,
    num_workers: int | None = None,
    name: str = "",
    one_size: bool = False,
) -> TrainingSummary:
    """Train a network, which is on its device, and make its norms' statistics precise.

    Called with a list of samples, the network returns the losses to sum, by name. The folder
    belongs to this training alone. An interrupted call, repeated with the same arguments, ends with
    the same weights; a finished training is only loaded.
    NotFiniteError if a loss is not finite, Stopped after a signal.
    num_workers: processes that load images for each training process. one_size: whether all samples
    have the same size, for which a GPU may measure its algorithms.
    """
    check(course, process)
    job = job_of(samples, course, seed, folder, process, num_workers, name)
    training = restored_training(network, optimizer, job)
    with proving(*[job.saved] * process.is_main):
        if not training.finished:
            with measured_convolutions(process.device, one_size=one_size):
                _iterate(job, training)
        finish(job, training)
    return summary(training)


def job_of(
    samples: Samples[Sample],
    course: TrainingSchedule,
    seed: int,
    folder: Path,
    process: Process,
    num_workers: int | None,
    name: str,
) -> Job:
    """Return the inputs of a training, with the usual number of loader processes if it is None."""
    if num_workers is None:
        num_workers = usual_workers(course.iterations * course.batch_size)
        num_workers = -(-num_workers // process.num_processes)
    return Job(
        samples=samples,
        course=course,
        seed=seed,
        saved=UnprovenFile(folder / "training.stage"),
        process=process,
        num_workers=num_workers,
        name=name,
    )


def finish(job: Job, training: Training) -> None:
    """Make the norms' statistics precise and save the weights, unless that is done."""
    if not training.finished:
        _make_norms_precise(job, training)
        training.finished = True
        if job.process.is_main:
            save(training, job.saved.private)
    training.network.eval()


def check(course: TrainingSchedule, process: Process) -> None:
    """Raise ValueError for settings that cannot run in these processes."""
    images_per_pass(course, process)
    if course.precision == "float16" and process.device.type != "cuda":
        raise ValueError(
            f"float16 needs a CUDA device, found {process.device.type}; take bfloat16 or float32"
        )


def restored_training(network: nn.Module, optimizer: torch.optim.SGD, job: Job) -> Training:
    """Return the training in its saved state if there is one, else in its initial state."""
    if job.process.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(job.process.device)
    training = Training(
        network=network.train(),
        optimizer=optimizer,
        scaler=torch.amp.GradScaler("cuda", enabled=job.course.precision == "float16"),
    )
    restore(training, job.saved.newest)
    any_process([False], job.process)  # all have read before the first one may rename it
    if job.process.is_main and training.iteration:
        print_line("train", f"{job.name}  going on after iteration {training.iteration}")
    elif job.process.is_main and job.saved.newest.exists():
        told = f"{job.saved.newest} is damaged: the training starts anew"
        print_line("train", f"{job.name}  {told}")
    return training


def _iterate(job: Job, training: Training) -> None:
    course, total = job.course, job.course.iterations
    network = _wrapped(training.network, job.process)
    batches = job.batches(range(training.iteration, total), course.accumulated)
    saved_s = time.monotonic()
    with _progress(job, training.iteration) as counter:
        while training.iteration < total:
            try:
                step(job, training, network, batches)
            except FloatingPointError as error:
                # both engines raise it for proposals that are not finite; the diverged iteration
                # may be an earlier, unread one
                raise _not_finite(job, training, training.unread, str(error)) from error
            training.iteration += 1
            last = training.iteration == total
            reading = last or training.iteration % READ_EVERY == 0
            # several processes communicate only where they wait for their devices anyway
            if not reading and job.process.num_processes > 1:
                continue
            due = time.monotonic() - saved_s > SAVE_EVERY_S
            stopping, due = any_process([stop.is_requested(), due], job.process)
            if reading or stopping or due:
                read_losses(job, training)
            if counter is not None:
                _show(job, training, counter)
            if last or stopping or due:
                if job.process.is_main:
                    save(training, job.saved.private)
                saved_s = time.monotonic()
            if stopping:
                _stop_together(job.process)
            if due and job.process.is_main:
                prove_if_cheap(job.saved)


def step(job: Job, training: Training, network: nn.Module, batches: Iterator[list[Sample]]) -> None:
    """Make one optimizer step; its losses stay on the device and are read later."""
    course, device = job.course, job.process.device.type
    set_rate(training.optimizer, learning_rate(course, training.iteration))
    training.optimizer.zero_grad(set_to_none=True)
    sums: dict[str, Tensor] = {}
    for number in range(course.accumulated):
        samples = next(batches)
        _seed_sampling(job, training.iteration * course.accumulated + number)
        summing = number + 1 == course.accumulated
        with _gradient_sync(network, later=not summing):
            with torch.autocast(device, _dtype(course), enabled=course.precision != "float32"):
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


def _seed_sampling(job: Job, number: int) -> None:
    """Seed torch's generator, which draws anchors and proposals, for one pass and process."""
    mixed = np.random.SeedSequence([job.seed, number, job.process.rank])
    torch.manual_seed(int(mixed.generate_state(1)[0]))


def _dtype(course: TrainingSchedule) -> torch.dtype:
    return torch.float16 if course.precision == "float16" else torch.bfloat16


@contextmanager
def _gradient_sync(network: nn.Module, *, later: bool) -> Iterator[None]:
    """Keep gradients in their process, unless the pass is the last one of its step."""
    if later and isinstance(network, DistributedDataParallel):
        with network.no_sync():
            yield
    else:
        yield


def _wrapped(network: nn.Module, process: Process) -> nn.Module:
    if process.num_processes == 1:
        return network
    device_ids = [process.device.index] if process.device.type == "cuda" else None
    # buffers are not broadcast: norms synchronize their own statistics, or each process has its own
    return DistributedDataParallel(
        network, device_ids=device_ids, forward_sync_buffers=False, gradient_as_bucket_view=True
    )


def _make_norms_precise(job: Job, training: Training) -> None:
    """Average the norms' statistics over the batches that would have come next."""
    count = job.course.precise_norm_batches
    if not count:
        return
    if job.process.is_main:
        print_line("norms", f"{job.name}  statistics over {count} batches")
    set_precise_norms(training.network, _norm_batches(job, count), job.process)


def _norm_batches(job: Job, count: int) -> Iterator[list[Sample]]:
    first = job.course.iterations * job.course.accumulated
    for number, batch in enumerate(job.batches(range(first, first + count), 1)):
        if number % READ_EVERY == 0 and any_process([stop.is_requested()], job.process)[0]:
            _stop_together(job.process)
        _seed_sampling(job, first + number)
        yield batch


def read_losses(job: Job, training: Training) -> None:
    """Copy the losses from the device; NotFiniteError, in every process, if one is not finite."""
    if not training.unread:
        return
    losses = torch.stack(training.unread)
    if job.process.num_processes > 1:
        dist.all_reduce(losses)
        losses /= job.process.num_processes
    losses = losses.cpu()
    if not bool(losses.isfinite().all()):
        raise _not_finite(job, training, list(losses), "")
    training.losses.append(losses)
    training.unread.clear()


def _not_finite(
    job: Job, training: Training, unread: list[Tensor], engine_says: str
) -> NotFiniteError:
    """Return an error that names the first bad iteration.

    unread: losses of the iterations since the last read, (number of losses,) each.
    """
    bad = [number for number, losses in enumerate(unread) if not bool(losses.isfinite().all())]
    done = training.iteration - len(training.unread)
    if bad:
        pairs = zip(training.names, unread[bad[0]].tolist(), strict=True)
        values = ", ".join(f"{name} {value:g}" for name, value in pairs)
        iteration = done + bad[0] + 1
    else:
        values, iteration = engine_says, training.iteration + 1
    known = job.saved.newest.exists()
    kept = f"the last good state is {job.saved.path}" if known else "no state was saved yet"
    return NotFiniteError(
        f"{job.name}: iteration {iteration} of {job.course.iterations}: a loss is not finite "
        f"({values}); {kept}. Check the backbone, lower the learning rate "
        f"{job.course.learning_rate:g}, or train in float32"
    )


def _stop_together(process: Process) -> None:
    any_process([True], process)  # no process ends while another one still writes
    raise stop.Stopped(stop.EXIT_RESUMABLE)


@contextmanager
def _progress(job: Job, done: int) -> Iterator[Progress | None]:
    if not job.process.is_main:
        yield None
        return
    size, total = job.course.batch_size, job.course.iterations
    with progress("train", job.name, total * size, "images", done * size) as counter:
        yield counter


def _show(job: Job, training: Training, counter: Progress) -> None:
    loss = f"  loss {float(training.losses[-1][-1].sum()):.3f}" if training.losses else ""
    at = f"{training.iteration}/{job.course.iterations}"
    counter.subject = f"{job.name}  iteration {at}{loss}"
    counter.add(training.iteration * job.course.batch_size - counter.done)
