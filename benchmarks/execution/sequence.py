"""Cells one after another in this process, with the progress of the whole run."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.execution.jobs import evaluations, extractions
from benchmarks.execution.states import write_status_page
from benchmarks.planning.plan import PlannedCell
from pretrain.running import stop
from pretrain.running.console import is_quiet, live_bars
from pretrain.running.lock import BusyError
from transfer.cells import state
from transfer.cells.cell import Cell, ClassifierError, open_checkpoint
from transfer.cells.command import summary
from transfer.cells.execution import prepare
from transfer.cells.many_gpus import evaluate_on_gpus
from transfer.cells.request import Settings
from transfer.encoders.encoder import BackboneError

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


@dataclass
class Overall:
    """Progress of a run, as a bar in a terminal and as the page of states."""

    total: int
    settings: Settings
    """Folders of the states and of their page."""
    bars: "Bars | None" = None
    ended: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        if self.bars is not None:
            self.bar = self.bars.add_task("all cells", total=self.total, count="")

    def begin(self, what: str) -> None:
        """Announce the next cell, as a line outside of a terminal."""
        if self.bars is None and not is_quiet():
            print(f"[{self.ended + 1}/{self.total}] {what}", file=sys.stderr, flush=True)
        self._show(f"all cells  {what}")

    def end(self, *, failed: bool) -> None:
        """Count a cell that has ended."""
        self.ended += 1
        self.failed += failed
        self._show(None)

    def _show(self, title: str | None) -> None:
        """Draw the bar with this title, or with the one that it has, and write the page."""
        if self.bars is not None:
            failed = f", {self.failed} failed" if self.failed else ""
            count = f"{self.ended}/{self.total} cells{failed}"
            self.bars.update(self.bar, description=title, completed=self.ended, count=count)
            self.bars.refresh()
        write_status_page(self.settings.results, self.settings.runs)


def run_cells(rows: Sequence[PlannedCell]) -> list[Cell]:
    """Run the cells in state "run", one after another; return those that failed.

    Snapshots, whose backbones have no weights yet, are loaded and evaluated one by one.
    """
    planned = [row for row in rows if row.state == "run"]
    failed: list[Cell] = []
    if not planned:
        return failed
    with live_bars() as bars:
        overall = Overall(len(planned), planned[0].cell.settings, bars)
        for _, group in groupby(planned, key=_weights_in_memory):
            failed += _run_together(list(group), overall)
    return failed


def _weights_in_memory(row: PlannedCell) -> str:
    """Return which rows are run together: those of one snapshot, or all others."""
    return "" if row.cell.backbone.state_dict else row.cell.backbone.name


def _run_together(planned: Sequence[PlannedCell], overall: Overall) -> list[Cell]:
    failed = []
    reasons: dict[Path, str] = {}
    torn: Exception | None = None
    if _weights_in_memory(planned[0]):
        stop.exit_if_requested()
        try:
            backbone = open_checkpoint(planned[0].cell.request.checkpoint)
            planned = [replace(row, cell=replace(row.cell, backbone=backbone)) for row in planned]
        except (BackboneError, OSError) as error:  # the file has changed since the plan
            torn = error
    groups = [job.cells for job in extractions(planned) if job.cell.needed is not None]
    joint = {cell.path: cells for cells in groups for cell in cells}
    for row in [row for job in evaluations(planned) for row in job.rows]:
        stop.exit_if_requested()
        cell = row.cell
        overall.begin(f"{cell.backbone.name}  {cell.key}")
        succeeded = run_cell(cell, joint.get(cell.path, ()), reasons, torn)
        failed += [] if succeeded else [cell]
        overall.end(failed=not succeeded)
    return failed


def run_cell(
    cell: Cell, joint: Sequence[Cell], reasons: dict[Path, str], torn: Exception | None
) -> bool:
    """Run the cell; return whether it succeeded. A failure is written to the failure file.

    The error of one cell must not stop the others. joint: cells that use classifiers and whose
    features are extracted together. reasons: why cells have failed in this run, by record path;
    that of this cell is added. torn: why the backbone has no weights.
    """
    needed = cell.needed
    try:
        if torn is not None:
            raise torn
        if needed is not None:
            if needed.path in reasons:
                raise ClassifierError(needed.key, reasons[needed.path])
            left = [each for each in joint if each.path not in reasons]
            prepare([each for each in left if each.needed and each.needed.path not in reasons])
        print(summary(cell, evaluate_on_gpus(cell)), flush=True)
        return True
    except BusyError as error:  # another process will write its record: no failure file
        print(f"{cell.key}  skipped: {error}", file=sys.stderr, flush=True)
    except Exception as error:
        state.fail(cell, error)
        reasons[cell.path] = str(error)
        if isinstance(error, ClassifierError) and needed is not None:
            reasons[needed.path] = error.reason
        print(f"{cell.key}  failed: {error}", file=sys.stderr, flush=True)
    return False
