"""Cells side by side on this machine: a process for each, with GPUs of its own where there are any.

Cells that read the same pass over images run one after another in one process. A cell that uses a
classifier starts once the classifier is trained, and not at all if that failed.
Before such cells of several backbones, one process decodes the images once and extracts features.
Ctrl-C and the signals of schedulers are passed on: each cell saves, and the same command continues.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.execution.one_cell import (
    arguments_of,
    arguments_of_all,
    preparation_arguments,
    process_command,
)
from benchmarks.execution.run_file import StatusPage
from benchmarks.planning.checkpoints import Origins
from benchmarks.planning.plan import (
    PlannedCell,
    groups_sharing_features,
    groups_sharing_passes,
)
from transfer.cells.execution import note_failure
from transfer.cells.request import Cell
from transfer.cells.shared_classifier import ClassifierError
from transfer.cells.staleness import finished
from transfer.record import failure_path
from transfer.running import stop
from transfer.running.console import is_quiet
from transfer.running.memory import SHARERS

FAILURE_WRITTEN = 1
"""Exit status of a cell that has written its failure file."""
STOPPED = (stop.EXIT_RESUMABLE, *(-number for number in stop.SIGNALS))
"""Exit statuses of a cell that was stopped: it has saved, or did not yet handle the signal."""
SIGNAL_DELAY_S = 1.0
"""Longest time until a signal to all processes of a job has reached this one too, in s."""


@dataclass(frozen=True)
class Work:
    """Work of one process: to run the cells of one pass, or to extract features for several."""

    cells: tuple[Cell, ...]
    """Cells that are run, or those that the features are for."""
    words: tuple[str, ...]
    prepares: bool = False
    """Only features are extracted."""

    @property
    def cell(self) -> Cell:
        """First cell, whose GPUs and classifier are those of all."""
        return self.cells[0]

    @property
    def needs(self) -> Path | None:
        """Record of the cell that must train the classifier first; None if there is none."""
        return None if self.prepares or self.cell.needed is None else self.cell.needed.path

    def waits_for(self, other: "Work") -> bool:
        """Return whether the other work has to end first."""
        if other.prepares:
            return not self.prepares and other.cell.task == self.cell.task
        return self.needs in [cell.path for cell in other.cells]


@dataclass
class Pool:
    """Running processes with their GPUs, and the free GPUs."""

    free: list[str]
    """Names of GPUs as CUDA_VISIBLE_DEVICES has them; empty on a machine without."""
    sharers: int
    """Most processes that run at a time; they share the memory of the machine."""
    running: dict[subprocess.Popen[bytes], tuple[Work, list[str]]] = field(default_factory=dict)
    old_failures: dict[Path, int] = field(default_factory=dict)
    """Version of each failure file before the cell's process was started, by the cell's record."""


def run_side_by_side(rows: Sequence[PlannedCell], origins: Origins, workers: int) -> list[Cell]:
    """Run the cells in state "run", `workers` at a time; return those that failed.

    Raises Stopped after a signal, once all cells have saved.
    """
    waiting = _all_work(rows, origins)
    number, total = 0, len(waiting)
    gpus = visible_gpus()
    pool = Pool(list(gpus), sharers=max(1, min(workers, total)))
    page = StatusPage(rows[0].cell.settings.runs)
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
            work = _next_work(waiting, pool)
            if work is None or len(pool.free) < _gpus_needed(work.cell, len(gpus)):
                break  # no smaller work overtakes: one that needs many GPUs would starve
            waiting.remove(work)
            number += 1
            what = "features for" if work.prepares else work.cell.backbone.name
            keys = work.cell.key if work.prepares else ", ".join(cell.key for cell in work.cells)
            if not is_quiet():
                print(f"[{number}/{total}] {what}  {keys}", file=sys.stderr)
            needed = [cell for cell in failed if cell.path == work.needs]
            if needed:
                failed += [_skip_cell(cell, needed[0]) for cell in work.cells]
            else:
                _start(work, pool, len(gpus))
        failed += _collect_ended(pool)
        page.refresh_if_old()
        _sleep(pool)
    page.refresh()
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


def _all_work(rows: Sequence[PlannedCell], origins: Origins) -> list[Work]:
    """Return all work in order: joint features of several backbones come first, cells that use a
    classifier last."""
    waiting = [row for row in rows if row.state == "run"]
    passes = [tuple(row.cell for row in group) for group in groups_sharing_passes(waiting)]
    passes.sort(key=lambda cells: cells[0].needed is not None)
    groups = [tuple(row.cell for row in group) for group in groups_sharing_features(waiting)]
    return [
        *(
            Work(group, preparation_arguments(group, origins), prepares=True)
            for group in groups
            if len({cell.backbone.sha256 for cell in group}) > 1
        ),
        *(
            Work(cells, arguments_of_all(arguments_of(cell, origins) for cell in cells))
            for cells in passes
        ),
    ]


def _next_work(waiting: Sequence[Work], pool: Pool) -> Work | None:
    """Return the first work that waits for nothing but GPUs; None if there is none."""
    others = [*waiting, *(work for work, _ in pool.running.values())]
    free = (work for work in waiting if not any(work.waits_for(other) for other in others))
    return next(free, None)


def _skip_cell(cell: Cell, failed_classifier: Cell) -> Cell:
    """Write the failure file of a cell whose classifier could not be trained; return the cell."""
    try:
        reason = json.loads(failure_path(failed_classifier.path).read_text())["reason"]
    except (OSError, ValueError, KeyError):
        reason = "it has no readable failure file"
    error = ClassifierError(failed_classifier.key, reason)
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


def _start(work: Work, pool: Pool, num_gpus: int) -> None:
    count = _gpus_needed(work.cell, num_gpus)
    gpus, pool.free = pool.free[:count], pool.free[count:]
    environment = {**os.environ, "TERM": "dumb"}  # bars of several processes would overwrite
    environment[SHARERS] = str(pool.sharers)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    pool.old_failures |= {cell.path: _failure_version(cell) for cell in work.cells}
    process = subprocess.Popen(
        process_command(work.words),
        env=environment,
        start_new_session=True,  # Ctrl-C reaches it through this process only
        preexec_fn=stop.signal_at_parents_end,
    )
    pool.running[process] = (work, gpus)


def _failure_version(cell: Cell) -> int:
    """Return the modification time of a cell's failure file in ns; 0 if there is none."""
    path = failure_path(cell.path)
    return path.stat().st_mtime_ns if path.exists() else 0


def _collect_ended(pool: Pool) -> list[Cell]:
    """Remove the processes that have ended and free their GPUs; return the cells that failed."""
    failed = []
    for process in [process for process in pool.running if process.poll() is not None]:
        work, gpus = pool.running.pop(process)
        pool.free += gpus
        status = process.returncode
        if status == 0 or _was_stopped(status):
            continue
        if work.prepares:
            warning = f"joint extraction failed: {_exit_reason(status)}; each cell extracts alone"
            print(f"{work.cell.key}  {warning}", file=sys.stderr, flush=True)
            continue
        failed += _failed_cells(work, status, pool.old_failures)
    return failed


def _failed_cells(work: Work, status: int, old_failures: Mapping[Path, int]) -> list[Cell]:
    """Return the cells of a process that have no record, and see that each has a failure file."""
    if status == FAILURE_WRITTEN and len(work.cells) == 1:
        return [work.cell]
    # a process may be killed after it has written a record
    failed = [cell for cell in work.cells if finished(cell) is None]
    for cell in failed:
        if status != FAILURE_WRITTEN and _failure_version(cell) == old_failures[cell.path]:
            note_failure(cell, RuntimeError(_exit_reason(status)))
            print(f"{cell.key}  failed: {_exit_reason(status)}", file=sys.stderr, flush=True)
    return failed


def _exit_reason(status: int) -> str:
    """Return the words for the exit status of a process that has left no failure file."""
    if status == stop.EXIT_RESUMABLE:
        return "stopped by another process; run the same command to continue"
    # Popen reports a signal as its negative number. A cell adds 128 to the number of the signal
    # that killed one of its own processes.
    number = -status if status < 0 else status - 128
    if number in {known.value for known in signal.Signals}:
        return f"killed by {signal.Signals(number).name}; run the same command to continue"
    return f"exit status {status}"
