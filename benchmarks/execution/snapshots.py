"""Evaluation of the snapshots of pre-training runs: a curve per run, a cell per snapshot and task.

Each snapshot gets a record below results/records/snapshots. A snapshot that fails leaves its reason
in the tables and does not stop the others.
"""

import sys
from pathlib import Path
from typing import Protocol

from benchmarks.execution.sequence import run_cell
from benchmarks.pages.curve_page import CURVE_SEPARATOR
from benchmarks.planning.cells import SharedSettings, cells_of, settings_of, split_words
from benchmarks.planning.plan import PlannedCell, plan_cell, render_plan
from benchmarks.planning.plan_groups import render_plan_groups
from benchmarks.report import update_report
from benchmarks.report_parts.run_folders import runs_with_logs
from benchmarks.tables import update_tables
from transfer.backbone import BackboneError, load_backbone
from transfer.cells.request import Cell, CellSettings
from transfer.datasets.images import DataError
from transfer.running import stop
from transfer.running.folders import check_writable
from transfer.running.row_names import check_row_name
from transfer.tasks import task_of


class SnapshotRequest(SharedSettings, Protocol):
    """Options of a command line that evaluates snapshots."""

    @property
    def snapshots(self) -> tuple[Path, ...]:
        """Folders written by `python -m pretrain ... --snapshot-epochs N`."""

    @property
    def name(self) -> tuple[str, ...]:
        """Names of the curves, one per folder; empty for those of the runs' folders."""


def evaluate_snapshots(
    request: SnapshotRequest, tasks: str, *, plan: bool = False, full: bool = False
) -> int:
    """Evaluate all snapshots and write tables and figures; return the exit status.

    tasks: ids, separated by commas. plan: only print what would run; full: a line per cell.
    """
    check_writable(request.results, "--results")
    check_writable(request.runs, "--runs")
    settings = settings_of(request, snapshots=True)
    keys = split_words(tasks)
    for key in keys:
        task_of(key)  # an unknown task must fail before a file is loaded
    names = request.name or tuple(folder.resolve().parent.name for folder in request.snapshots)
    rows: list[PlannedCell] = []
    failed = 0
    for curve, files in zip(names, snapshot_files(request, names), strict=True):
        for file in files:
            stop.exit_if_requested()
            name = f"{curve}{CURVE_SEPARATOR}{file.stem}"
            if plan:
                rows += [plan_cell(cell) for cell in _cells(file, name, keys, settings)]
            else:
                failed += not evaluate_snapshot(file, name, keys, settings)
    if plan:
        print(render_plan(rows) if full else render_plan_groups(rows), file=sys.stderr)
        return 0
    tables_written = update_tables(request.results)
    update_report(request.results, runs_with_logs(request.snapshots))
    print(f"{failed} snapshots failed", file=sys.stderr)
    return int(failed > 0 or not tables_written)


def evaluate_snapshot(file: Path, name: str, keys: list[str], settings: CellSettings) -> bool:
    """Evaluate a snapshot on all tasks; return whether every task has its record.

    DataError if a data set is absent or has too few images.
    """
    try:
        cells = _cells(file, name, keys, settings)
    except (BackboneError, OSError) as error:
        print(f"{name}  failed: {error}", file=sys.stderr, flush=True)
        return False
    rows = [row for cell in cells if (row := plan_cell(cell)).state == "no data"]
    absent = dict.fromkeys(key for row in rows for key in row.missing)
    reasons = [f"no {', '.join(absent)} below {settings.data}"] if absent else []
    reasons += [f"{row.cell.key}: {row.why}" for row in rows if row.why]
    if reasons:
        raise DataError(f"no snapshot can be evaluated: {'; '.join(reasons)}")
    done = []
    for cell in cells:
        stop.exit_if_requested()
        done.append(run_cell(cell))
    return all(done)


def _cells(file: Path, name: str, keys: list[str], settings: CellSettings) -> list[Cell]:
    return cells_of([load_backbone(file, name=name)], keys, settings)


def snapshot_files(request: SnapshotRequest, names: tuple[str, ...]) -> list[list[Path]]:
    """Return the snapshots of each folder.

    ValueError for a wrong number of names, a name that occurs twice, or a folder without snapshots.
    """
    if len(names) != len(request.snapshots):
        raise ValueError(
            f"--name {' '.join(names)}: {len(names)} names for {len(request.snapshots)} folders of "
            "snapshots"
        )
    for name, folder in zip(names, request.snapshots, strict=True):
        check_row_name(name, folder.resolve().parent.name)
    if len(set(names)) < len(names):
        raise ValueError(f"curves {', '.join(names)}: a name occurs twice; give each a --name")
    files = [sorted(folder.glob("*.pt")) for folder in request.snapshots]
    for folder, paths in zip(request.snapshots, files, strict=True):
        if not paths:
            raise ValueError(
                f"{folder}: no snapshot; python -m pretrain RECIPE ... --snapshot-epochs 10 "
                "writes them"
            )
    return files
