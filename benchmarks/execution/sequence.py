"""Cells one after another in this process, with the progress of the whole run."""

import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.execution.jobs import evaluations, extractions
from benchmarks.execution.run_file import refresh_page
from benchmarks.planning.plan import PlannedCell
from pretrain.running import stop
from pretrain.running.lock import BusyError
from transfer.cells.command import summary
from transfer.cells.execution import note_failure, prepare
from transfer.cells.many_gpus import evaluate_on_gpus
from transfer.cells.request import Cell
from transfer.cells.shared_classifier import ClassifierError
from transfer.running.console import format_duration, is_quiet, live_bars

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

LEAST_HOURS = 0.01
"""Least weight of a cell: a cell that costs no GPU time still has to start."""


@dataclass
class Overall:
    """Progress of a run whose cells have known weights, such as estimated GPU hours."""

    total: int
    hours: float
    """Sum of the weights of all cells."""
    bars: "Bars | None" = None
    runs: Collection[Path] = ()
    """Folders that have a page of states."""
    started: int = 0
    ended: int = 0
    failed: int = 0
    hours_ended: float = 0.0
    start: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.bars is not None:
            self.bar = self.bars.add_task("all cells", total=self.hours, count="")

    def begin(self, what: str) -> None:
        """Announce the next cell, as a line outside of a terminal."""
        self.started += 1
        if self.bars is None and not is_quiet():
            print(f"[{self.started}/{self.total}] {what}", file=sys.stderr, flush=True)
        self._show(f"all cells  {what}")

    def end(self, hours: float, *, failed: bool) -> None:
        """Count a cell that has ended; hours: its weight."""
        self.ended += 1
        self.failed += failed
        self.hours_ended += max(hours, LEAST_HOURS)
        self._show(None)

    def state(self) -> str:
        """Return words such as "12/50 cells, 1 failed, 2 h 10 min left"."""
        words = [f"{self.ended}/{self.total} cells"]
        words += [f"{self.failed} failed"] * bool(self.failed)
        if self.hours_ended and self.ended < self.total:
            elapsed = time.monotonic() - self.start
            left = elapsed * (self.hours - self.hours_ended) / self.hours_ended
            words.append(f"about {format_duration(max(0.0, left))} left")
        return ", ".join(words)

    def _show(self, title: str | None) -> None:
        """Draw the bar with this title, or with the one that it has, and write the page."""
        if self.bars is not None:
            count, done = self.state(), self.hours_ended
            self.bars.update(self.bar, description=title, completed=done, count=count)
            self.bars.refresh()
        for runs in self.runs:
            refresh_page(runs)


@contextmanager
def overall_progress(planned: Sequence[PlannedCell]) -> Iterator[Overall]:
    """Yield the progress of these cells, which the terminal and the page runs/status.html show."""
    runs = {row.cell.settings.runs for row in planned}
    hours = sum(max(row.gpu_hours, LEAST_HOURS) for row in planned)
    with live_bars() as bars:
        yield Overall(len(planned), hours, bars, runs)


def run_cells(rows: list[PlannedCell]) -> list[Cell]:
    """Run the cells in state "run", one after another; return those that failed."""
    planned = [row for row in rows if row.state == "run"]
    with overall_progress(planned) as overall:
        return run_in_turn(planned, overall)


def run_in_turn(planned: Sequence[PlannedCell], overall: Overall) -> list[Cell]:
    """Run cells one after another; return those that failed. overall: progress of all cells."""
    failed = []
    reasons: dict[Path, str] = {}
    groups = [job.cells for job in extractions(planned) if job.cell.needed is not None]
    joint = {cell.path: cells for cells in groups for cell in cells}
    for row in [row for job in evaluations(planned) for row in job.rows]:
        stop.exit_if_requested()
        cell = row.cell
        overall.begin(f"{cell.backbone.name}  {cell.key}")
        succeeded = run_cell(cell, joint.get(cell.path, ()), reasons)
        failed += [] if succeeded else [cell]
        overall.end(row.gpu_hours, failed=not succeeded)
    return failed


def run_cell(cell: Cell, joint: Sequence[Cell], reasons: dict[Path, str]) -> bool:
    """Run the cell; return whether it succeeded. A failure is written to the failure file.

    The error of one cell must not stop the others. joint: cells that use classifiers and whose
    features are extracted together. reasons: why cells have failed in this run, by record path;
    that of this cell is added.
    """
    try:
        if (needed := cell.needed) is not None:
            if needed.path in reasons:
                raise ClassifierError(needed.key, reasons[needed.path])
            left = [each for each in joint if each.path not in reasons]
            prepare([each for each in left if each.needed and each.needed.path not in reasons])
        print(summary(cell, evaluate_on_gpus(cell)), flush=True)
        return True
    except BusyError as error:  # another process will write its record: no failure file
        print(f"{cell.key}  skipped: {error}", file=sys.stderr, flush=True)
    except Exception as error:
        note_failure(cell, error)
        reasons[cell.path] = str(error)
        if isinstance(error, ClassifierError) and needed is not None:
            reasons[needed.path] = error.reason
        print(f"{cell.key}  failed: {error}", file=sys.stderr, flush=True)
    return False
