"""Cells side by side on this machine: a process for each, with GPUs of its own where there are any.

Cells that read the same pass over images run one after another in one process. A cell that uses a
classifier starts once the classifier is trained, and not at all if that failed.
Before such cells of several backbones, one process decodes the images once and extracts features.
Ctrl-C and the signals of schedulers are passed on: each cell saves, and the same command continues.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.execution.jobs import Job, evaluations, extractions, process_command
from benchmarks.execution.run_file import refresh_page
from benchmarks.execution.states import REFRESH_S, StartedCell, start_of
from benchmarks.planning.plan import PlannedCell
from pretrain.running import stop
from slurm.requeue import killing_signal
from transfer.cells.execution import note_failure
from transfer.cells.request import Cell, finished
from transfer.cells.shared_classifier import ClassifierError
from transfer.running.console import is_quiet
from transfer.running.memory import SHARERS

if TYPE_CHECKING:
    from benchmarks.planning.checkpoints import Origins

FAILURE_WRITTEN = 1
"""Exit status of a cell that has written its failure file."""
STOPPED = (stop.EXIT_RESUMABLE, *(-number for number in stop.SIGNALS))
"""Exit statuses of a cell that was stopped: it has saved, or did not yet handle the signal."""
SIGNAL_DELAY_S = 1.0
"""Longest time until a signal to all processes of a job has reached this one too, in s."""


@dataclass
class Pool:
    """Running processes with their GPUs, and the free GPUs."""

    free: list[str]
    """Names of GPUs as CUDA_VISIBLE_DEVICES has them; empty on a machine without."""
    sharers: int
    """Most processes that run at a time; they share the memory of the machine."""
    running: dict[subprocess.Popen[bytes], tuple[Job, list[str]]] = field(default_factory=dict)
    started: dict[Path, StartedCell] = field(default_factory=dict)
    """What was there before the cell's process was started, by the cell's record."""


def run_side_by_side(rows: Sequence[PlannedCell], origins: "Origins", workers: int) -> list[Cell]:
    """Run the cells in state "run", `workers` at a time; return those that failed.

    Raises Stopped after a signal, once all cells have saved.
    """
    # the cells of one backbone find each other's features; only images of several decode together
    joint = [job for job in extractions(rows) if len({c.backbone.sha256 for c in job.cells}) > 1]
    waiting = [*joint, *evaluations(rows)]
    number, total = 0, len(waiting)
    gpus = visible_gpus()
    pool = Pool(list(gpus), sharers=max(1, min(workers, total)))
    runs, page_s = rows[0].cell.settings.runs, time.monotonic() - REFRESH_S
    failed: list[Cell] = []
    forwarded = False
    while waiting or pool.running:
        if stop.is_requested():
            waiting.clear()
            if not forwarded:
                forwarded = True
                for process in pool.running:
                    process.send_signal(signal.SIGTERM)
        while len(pool.running) < workers:
            job = _next_job(waiting, pool)
            if job is None or len(pool.free) < _gpus_needed(job.cell, len(gpus)):
                break  # no smaller work overtakes: one that needs many GPUs would starve
            waiting.remove(job)
            number += 1
            what = "features for" if job.prepares else job.cell.backbone.name
            keys = job.cell.key if job.prepares else ", ".join(cell.key for cell in job.cells)
            if not is_quiet():
                print(f"[{number}/{total}] {what}  {keys}", file=sys.stderr)
            needed = [cell for cell in failed if cell.path == job.needs]
            if needed:
                failed += [_skip_cell(cell, needed[0], pool) for cell in job.cells]
            else:
                _start(job, origins, pool, len(gpus))
        failed += _collect_ended(pool)
        if time.monotonic() - page_s >= REFRESH_S:
            page_s = time.monotonic()
            refresh_page(runs)
        _sleep(pool)
    refresh_page(runs)
    stop.exit_if_requested()
    return failed


def _sleep(pool: Pool) -> None:
    """Sleep for 0.1 s. The second Ctrl-C, which raises here, kills the cells at once."""
    try:
        time.sleep(0.1)
    except KeyboardInterrupt:
        for process in pool.running:
            process.kill()
            process.wait()
        raise


def _was_stopped(status: int) -> bool:
    """Return whether a process ended because all were stopped.

    The signal may reach this process last, so its arrival is awaited for SIGNAL_DELAY_S.
    """
    until = time.monotonic() + SIGNAL_DELAY_S
    while status in STOPPED and not stop.is_requested() and time.monotonic() < until:
        time.sleep(0.05)
    return status in STOPPED and stop.is_requested()


def _next_job(waiting: Sequence[Job], pool: Pool) -> Job | None:
    """Return the first job that waits for nothing but GPUs; None if there is none."""
    others = [*waiting, *(job for job, _ in pool.running.values())]
    free = (job for job in waiting if not any(job.waits_for(other) for other in others))
    return next(free, None)


def _skip_cell(cell: Cell, classifier: Cell, pool: Pool) -> Cell:
    """Write the failure file of a cell whose classifier could not be trained; return the cell."""
    reason = pool.started[classifier.path].failure or "it has no readable failure file"
    error = ClassifierError(classifier.key, reason)
    note_failure(cell, error)
    print(f"{cell.key}  failed: {error}", file=sys.stderr, flush=True)
    return cell


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use."""
    import torch

    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return names.split(",")[:count] if names else [str(index) for index in range(count)]


def _gpus_needed(cell: Cell, num_gpus: int) -> int:
    """Return the number of GPUs of a cell: one, or as many as it trains on; 0 without GPUs."""
    if not num_gpus:
        return 0
    many = cell.task.distributed_training is not None and cell.settings.training.gpus
    return min(cell.settings.training.gpus, num_gpus) if many else 1


def _start(job: Job, origins: "Origins", pool: Pool, num_gpus: int) -> None:
    count = _gpus_needed(job.cell, num_gpus)
    gpus, pool.free = pool.free[:count], pool.free[count:]
    environment = {**os.environ, "TERM": "dumb"}  # bars of several processes would overwrite
    environment[SHARERS] = str(pool.sharers)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    pool.started |= {cell.path: StartedCell(**start_of(cell)) for cell in job.cells}
    process = subprocess.Popen(
        process_command(job.arguments(origins)),
        env=environment,
        start_new_session=True,  # Ctrl-C reaches it through this process only
        preexec_fn=stop.signal_at_parents_end,
    )
    pool.running[process] = (job, gpus)


def _collect_ended(pool: Pool) -> list[Cell]:
    """Remove the processes that have ended and free their GPUs; return the cells that failed."""
    failed = []
    for process in [process for process in pool.running if process.poll() is not None]:
        job, gpus = pool.running.pop(process)
        pool.free += gpus
        status = process.returncode
        if status == 0 or _was_stopped(status):
            continue
        if job.prepares:
            warning = f"joint extraction failed: {_exit_reason(status)}; each cell extracts alone"
            print(f"{job.cell.key}  {warning}", file=sys.stderr, flush=True)
            continue
        failed += _failed_cells(job, status, pool)
    return failed


def _failed_cells(job: Job, status: int, pool: Pool) -> list[Cell]:
    """Return the cells of a process that have no record, and see that each has a failure file."""
    if status == FAILURE_WRITTEN and len(job.cells) == 1:
        return [job.cell]
    # a process may be killed after it has written a record
    failed = [cell for cell in job.cells if finished(cell) is None]
    for cell in failed:
        if status != FAILURE_WRITTEN and pool.started[cell.path].failure is None:
            note_failure(cell, RuntimeError(_exit_reason(status)))
            print(f"{cell.key}  failed: {_exit_reason(status)}", file=sys.stderr, flush=True)
    return failed


def _exit_reason(status: int) -> str:
    """Return the words for the exit status of a process that has left no failure file."""
    if status == stop.EXIT_RESUMABLE:
        return "stopped by another process; run the same command to continue"
    killer = killing_signal(status)
    return (
        f"killed by {killer}; run the same command to continue"
        if killer
        else f"exit status {status}"
    )
