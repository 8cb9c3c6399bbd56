"""Trainings of several networks on one stream of images, such as those that compare rates.

The image of each place is decoded and cropped once for all networks. Each network gets the batches,
the draws and the steps that it would get alone, so its weights are the same.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from pretrain.running import stop
from pretrain.running.atomic_files import write_whole
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import Process
from transfer.backbone import Backbone
from transfer.datasets.unchanged import UnprovenFile, prove_if_cheap, proving
from transfer.finetuning.gpu import measured_convolutions
from transfer.finetuning.loop import (
    READ_EVERY,
    SAVE_EVERY_S,
    Job,
    check,
    finish,
    job_of,
    read_losses,
    restored_training,
    step,
)
from transfer.finetuning.schedule import TrainingSchedule
from transfer.finetuning.state import Training, TrainingSummary, save, summary
from transfer.finetuning.stream import Sample, Samples
from transfer.running.console import progress

BYTES_PER_PARAMETER = 16
"""Weight, gradient and momentum in float32, and as much again for rounding to blocks."""
FREE_SHARE = 0.5
"""Share of a GPU's free memory for networks side by side; the rest is for one pass at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Competitor:
    """One of several trainings: a network on its device, its optimizer, settings and folder."""

    network: nn.Module
    optimizer: torch.optim.SGD
    course: TrainingSchedule
    folder: Path
    name: str


@dataclass(kw_only=True, eq=False)
class _Run:
    """A training that goes on until it is finished or diverges."""

    job: Job
    training: Training
    error: NotFiniteError | None = None

    @cached_property
    def note(self) -> UnprovenFile:
        """File with the words of its divergence; without it a resumed group would wait for it."""
        return UnprovenFile(self.job.saved.path.with_name("diverged.txt"))

    def leave(self, error: NotFiniteError) -> None:
        """Leave the group, also after a restart."""
        self.error = error
        write_whole(self.note.private, str(error).encode(), "--runs")


def number_at_once(requested: int, backbone: Backbone, process: Process) -> int:
    """Return how many networks train side by side: as requested, or as many as a GPU holds.

    On a CPU, one unless requested otherwise; one in a run of several processes.
    """
    if process.num_processes > 1:
        return 1
    if requested or process.device.type != "cuda":
        return requested or 1
    num_parameters = sum(tensor.numel() for tensor in backbone.state_dict.values())
    free = torch.cuda.mem_get_info(process.device)[0]
    return max(1, int(FREE_SHARE * free / (BYTES_PER_PARAMETER * num_parameters)))


def train_side_by_side(
    competitors: Sequence[Competitor],
    samples: Samples[Sample],
    *,
    seed: int,
    process: Process,
    num_workers: int | None = None,
    one_size: bool = False,
) -> list[TrainingSummary | NotFiniteError]:
    """Train networks on the same images in one process; return the summary or error of each.

    Their settings agree in everything that the stream depends on. Each goes on from its own
    checkpoint, like a training alone, and one that diverges leaves the others, also after a
    restart; if all have diverged, a restart tries them again. Stopped after a signal.
    """
    runs = []
    for one in competitors:
        check(one.course, process)
        job = job_of(samples, one.course, seed, one.folder, process, num_workers, one.name)
        runs.append(_Run(job=job, training=restored_training(one.network, one.optimizer, job)))
    streams = {(run.job.course.iterations, run.job.course.batch_size) for run in runs}
    if len(streams) > 1 or process.num_processes > 1 or runs[0].job.course.accumulated > 1:
        raise ValueError(
            f"networks of {len(streams)} streams in {process.num_processes} processes; those side "
            "by side need one length, one batch and one process"
        )
    _recall_divergence(runs)
    with proving(*_files(runs)):
        with measured_convolutions(process.device, one_size=one_size):
            _iterate(runs)
        for run in runs:
            if run.error is None:
                finish(run.job, run.training)
    return [run.error or summary(run.training) for run in runs]


def _files(runs: Sequence[_Run]) -> list[UnprovenFile]:
    return [file for run in runs for file in (run.job.saved, run.note)]


def _recall_divergence(runs: Sequence[_Run]) -> None:
    """Leave out the runs that have diverged before, unless no other is left."""
    if all(run.note.newest.exists() for run in runs):
        for run in runs:
            run.note.discard()
            run.note.path.unlink(missing_ok=True)
    for run in runs:
        if run.note.newest.exists() and not run.training.finished:
            run.error = NotFiniteError(run.note.newest.read_text())


def _iterate(runs: Sequence[_Run]) -> None:
    """Make all steps of all runs; a run whose checkpoint is ahead waits for the others."""
    job, total = runs[0].job, runs[0].job.course.iterations
    size = job.course.batch_size
    first = min(run.training.iteration for run in runs if run.error is None)
    if first == total:
        return
    batches = job.batches(range(first, total), 1)
    saved_s = time.monotonic()
    subject = ", ".join(run.job.name for run in runs)
    with progress("train", subject, total * size, "images", first * size) as counter:
        for iteration in range(first, total):
            _step_all(runs, iteration, batches)
            stopping, last = stop.is_requested(), iteration + 1 == total
            due = time.monotonic() - saved_s > SAVE_EVERY_S
            # always before a save: the state of a run that has diverged must not be stored
            if last or stopping or due or (iteration + 1) % READ_EVERY == 0:
                _read_all(runs)
            counter.add(size)
            if last or stopping or due:
                for run in runs:
                    if run.error is None and not run.training.finished:
                        save(run.training, run.job.saved.private)
                saved_s = time.monotonic()
            if stopping:
                raise stop.Stopped(stop.EXIT_RESUMABLE)
            if due:
                prove_if_cheap(*_files(runs))
            if all(run.error for run in runs):
                break


def _step_all(runs: Sequence[_Run], iteration: int, batches: Iterator[list[Sample]]) -> None:
    """Make the step of one iteration in every run that has not made it; all get one batch."""
    batch = next(batches)
    for run in runs:
        if run.error is None and run.training.iteration == iteration:
            # a step seeds torch's generator itself, so the other runs do not change its draws
            step(run.job, run.training, run.training.network, iter([batch]))
            run.training.iteration += 1


def _read_all(runs: Sequence[_Run]) -> None:
    """Read the losses of every run; keep the error of one that diverged."""
    for run in runs:
        if run.error is None:
            try:
                read_losses(run.job, run.training)
            except NotFiniteError as error:
                run.leave(error)
