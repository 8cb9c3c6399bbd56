"""Cells one after another in this process, with the progress of the whole run."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.execution.run_file import StatusPage
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
    from rich.progress import TaskID

LEAST_HOURS = 0.01
"""Least weight of a cell: a cell that costs no GPU time still has to start."""


@dataclass
class Overall:
    """Progress of a run whose cells have known weights, such as estimated GPU hours."""

    total: int
    hours: float
    """Sum of the weights of all cells."""
    bars: "Bars | None" = None
    bar: "TaskID | None" = None
    started: int = 0
    ended: int = 0
    failed: int = 0
    hours_ended: float = 0.0
    start: float = field(default_factory=time.monotonic)
    on_change: Callable[[], None] = lambda: None
    """Called when a cell has begun or ended."""

    def begin(self, what: str) -> None:
        """Announce the next cell, as a line outside of a terminal."""
        self.started += 1
        if self.bars is None and not is_quiet():
            print(f"[{self.started}/{self.total}] {what}", file=sys.stderr, flush=True)
        self._show(what)
        self.on_change()

    def end(self, hours: float, *, failed: bool) -> None:
        """Count a cell that has ended; hours: its weight."""
        self.ended += 1
        self.failed += failed
        self.hours_ended += max(hours, LEAST_HOURS)
        self._show("")
        self.on_change()

    def state(self) -> str:
        """Return words such as "12/50 cells, 1 failed, 2 h 10 min left"."""
        words = [f"{self.ended}/{self.total} cells"]
        words += [f"{self.failed} failed"] * bool(self.failed)
        if self.hours_ended and self.ended < self.total:
            elapsed = time.monotonic() - self.start
            left = elapsed * (self.hours - self.hours_ended) / self.hours_ended
            words.append(f"about {format_duration(max(0.0, left))} left")
        return ", ".join(words)

    def _show(self, what: str) -> None:
        if self.bars is not None and self.bar is not None:
            title = f"all cells  {what}" if what else None  # None: it stays
            self.bars.update(
                self.bar, description=title, completed=self.hours_ended, count=self.state()
            )
            self.bars.refresh()


@contextmanager
def overall_progress(
    hours: list[float], on_change: Callable[[], None] = lambda: None
) -> Iterator[Overall]:
    """Yield the progress of cells with these estimated hours, with a bar on a terminal."""
    whole = sum(max(each, LEAST_HOURS) for each in hours)
    with live_bars() as bars:
        bar = None if bars is None else bars.add_task("all cells", total=whole, count="")
        yield Overall(total=len(hours), hours=whole, bars=bars, bar=bar, on_change=on_change)


def run_cells(rows: list[PlannedCell]) -> list[Cell]:
    """Run the cells in state "run", one after another; return those that failed."""
    planned = [row for row in rows if row.state == "run"]
    with shown_progress(planned) as overall:
        return run_in_turn(planned, overall)


@contextmanager
def shown_progress(planned: Sequence[PlannedCell]) -> Iterator[Overall]:
    """Yield the progress of these cells, which the terminal and the page runs/status.html show."""
    page = StatusPage(planned[0].cell.settings.runs).refresh if planned else lambda: None
    with overall_progress([row.gpu_hours for row in planned], page) as overall:
        yield overall


def run_in_turn(planned: Sequence[PlannedCell], overall: Overall) -> list[Cell]:
    """Run cells one after another; return those that failed. overall: progress of all cells."""
    failed = []
    reasons: dict[Path, str] = {}
    """Reasons of failed cells and classifiers, by record path."""
    # classifiers are trained before use
    ordered = sorted(planned, key=lambda row: row.cell.needed is not None)
    waiting = [row.cell for row in ordered]
    for number, row in enumerate(ordered, 1):
        stop.exit_if_requested()
        cell = row.cell
        overall.begin(f"{cell.backbone.name}  {cell.key}")
        if not run_cell(cell, waiting[number:], reasons):
            failed.append(cell)
        overall.end(row.gpu_hours, failed=failed[-1:] == [cell])
    return failed


def run_cell(
    cell: Cell, later: Sequence[Cell] = (), reasons: dict[Path, str] | None = None
) -> bool:
    """Run the cell; return whether it succeeded. A failure is written to the failure file.

    The error of one cell must not stop the others. later: cells that may read the same images.
    reasons: why cells have failed in this run, by record path; failures of this cell are added.
    """
    reasons = {} if reasons is None else reasons
    try:
        if cell.needed is not None:
            _prepare_together(cell, later, reasons)
        print(summary(cell, evaluate_on_gpus(cell)), flush=True)
        return True
    except BusyError as error:  # another process will write its record: no failure file
        print(f"{cell.key}  skipped: {error}", file=sys.stderr, flush=True)
    except Exception as error:
        note_failure(cell, error)
        reasons[cell.path] = str(error)
        if isinstance(error, ClassifierError) and cell.needed is not None:
            reasons[cell.needed.path] = error.reason
        print(f"{cell.key}  failed: {error}", file=sys.stderr, flush=True)
    return False


def _prepare_together(cell: Cell, others: Sequence[Cell], reasons: dict[Path, str]) -> None:
    """Extract features for a cell that uses a classifier, and for later cells of the same task.

    ClassifierError if the classifier has failed in this run.
    """
    alike = [cell, *(other for other in others if other.task == cell.task)]
    classifier_failures = {
        other.path: reasons.get(other.needed.path) for other in alike if other.needed
    }
    reason = classifier_failures[cell.path]
    if reason is not None and cell.needed is not None:
        raise ClassifierError(cell.needed.key, reason)
    prepare([other for other in alike if classifier_failures[other.path] is None])
