"""Cells side by side on this machine: a process for each, with GPUs of its own where there are any.

Ctrl-C and the signals of schedulers are handed on: each cell saves, and the same command goes on.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.checkpoints import Origins
from benchmarks.one_cell import program, words_of
from benchmarks.plan import PlannedCell
from transfer import stop
from transfer.cell import Cell, note_failure
from transfer.tasks import FineTuned

SAID_WHY = 1
"""Exit status of a cell that has left its reason."""


@dataclass
class Side:
    """What runs now, and on which GPUs."""

    free: list[str]
    """Names of GPUs as CUDA_VISIBLE_DEVICES has them; empty on a machine without."""
    running: dict[subprocess.Popen[bytes], tuple[Cell, list[str]]] = field(default_factory=dict)


def run_side_by_side(rows: Sequence[PlannedCell], origins: Origins, workers: int) -> list[Cell]:
    """Run what is not finished, so many at a time; the cells that failed.

    Raises Stopped, once all cells have saved, if a signal asked for it.
    """
    waiting = [row.cell for row in rows if row.state == "run"]
    waiting.sort(key=lambda cell: cell.needed is not None)  # its classifier is trained before
    total = len(waiting)
    gpus = visible_gpus()
    side = Side(list(gpus))
    failed: list[Cell] = []
    told = False
    while waiting or side.running:
        if stop.asked():
            waiting.clear()
            if not told:
                told = True
                for process in side.running:
                    process.send_signal(signal.SIGTERM)
        while waiting and len(side.running) < workers and _fits(waiting[0], side, len(gpus)):
            number = total - len(waiting) + 1
            cell = waiting.pop(0)
            print(f"[{number}/{total}] {cell.backbone.name}  {cell.key}", file=sys.stderr)
            _start(cell, origins, side, len(gpus))
        failed += _ended(side)
        time.sleep(0.1)
    stop.leave_if_asked()
    return failed


def visible_gpus() -> list[str]:
    """Names of this machine's GPUs, of those that were given to this process."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return given.split(",")[:count] if given else [str(index) for index in range(count)]


def _asked(cell: Cell, num_gpus: int) -> int:
    """GPUs of a cell: one, or as many as it trains on."""
    if not num_gpus:
        return 0
    many = isinstance(cell.task, FineTuned) and cell.place.training.gpus
    return min(cell.place.training.gpus, num_gpus) if many else 1


def _fits(cell: Cell, side: Side, num_gpus: int) -> bool:
    return len(side.free) >= _asked(cell, num_gpus)


def _start(cell: Cell, origins: Origins, side: Side, num_gpus: int) -> None:
    count = _asked(cell, num_gpus)
    mine, side.free = side.free[:count], side.free[count:]
    environment = dict(os.environ)
    if mine:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
    process = subprocess.Popen(
        program(words_of(cell, origins)),
        env=environment,
        start_new_session=True,  # Ctrl-C reaches it through this process only
        preexec_fn=stop.asked_at_parents_end,
    )
    side.running[process] = (cell, mine)


def _ended(side: Side) -> list[Cell]:
    """Take away what has ended; the cells that failed."""
    failed = []
    for process in [process for process in side.running if process.poll() is not None]:
        cell, gpus = side.running.pop(process)
        side.free += gpus
        status = process.returncode
        if status == 0 or (status == stop.REQUEUE and stop.asked()):
            continue
        failed.append(cell)
        if status != SAID_WHY:
            note_failure(cell, RuntimeError(_told(status)))
            print(f"{cell.key}  failed: {_told(status)}", file=sys.stderr, flush=True)
    return failed


def _told(status: int) -> str:
    """Of a process that has left no reason."""
    if status == stop.REQUEUE:
        return "stopped by somebody else; the same command goes on"
    number = -status if status < 0 else status - 128
    if number in {known.value for known in signal.Signals}:
        return f"killed by {signal.Signals(number).name}; the same command goes on"
    return f"exit status {status}"
