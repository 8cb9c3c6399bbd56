"""Evaluation of the snapshots of pre-training runs: a curve per run, a cell per snapshot and task.

Each snapshot gets a record below results/records/snapshots. A snapshot that fails leaves its reason
in the tables and does not stop the others. Plan, progress, states and the last screen are those of
`run_all.py --ckpt`.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from benchmarks.execution.ending import finish_run
from benchmarks.execution.run_file import write_run_file
from benchmarks.execution.sequence import Overall, overall_progress, run_in_turn
from benchmarks.pages.overview import CURVE_SEPARATOR
from benchmarks.planning.cells import cells_of, split_words
from benchmarks.planning.checkpoints import Origin, inspect_checkpoint
from benchmarks.planning.options import RunAll, settings_of
from benchmarks.planning.plan import (
    PlannedCell,
    plan_cell,
    render_plan,
    render_plan_groups,
    with_classifiers,
    with_passes_counted_once,
)
from pretrain.running import stop
from transfer.backbone import BackboneError, load_backbone
from transfer.cells.execution import note_failure
from transfer.cells.request import Cell, CellSettings
from transfer.datasets.expected import DataError
from transfer.running.console import is_quiet
from transfer.running.folders import check_writable
from transfer.running.row_names import check_row_name
from transfer.tasks import task_of

DEFAULT_TASKS = "cifar10_knn"


def evaluate_snapshots(request: RunAll) -> int:
    """Evaluate all snapshots and write tables and figures; return the exit status."""
    start = time.monotonic()
    check_writable(request.results, "--results")
    check_writable(request.runs, "--runs")
    settings = settings_of(request)
    keys = split_words(request.tasks or DEFAULT_TASKS)
    for key in keys:
        task_of(key)  # an unknown task must fail before a file is loaded
    files = snapshot_files(request)
    rows, unreadable = plan_snapshots(files, keys, settings)
    if request.plan or not is_quiet():
        shown = render_plan(rows) if request.plan_full else render_plan_groups(rows)
        print(shown, file=sys.stderr)
    if request.plan:
        return 0
    _require_data(rows, request.data)
    planned = [row for row in rows if row.state == "run"]
    write_run_file([row.cell for row in planned], request.runs)
    failed = run_snapshots(planned, files)
    return finish_run(rows, failed, request, start, unreadable)


def plan_snapshots(
    files: Mapping[str, Path], keys: Sequence[str], settings: CellSettings
) -> tuple[list[PlannedCell], dict[str, str]]:
    """Return a row per snapshot and task, without weights, and why other snapshots have none.

    files: the snapshots by their names in the tables.
    """
    rows: list[PlannedCell] = []
    unreadable: dict[str, str] = {}
    for name, file in files.items():
        stop.exit_if_requested()
        try:
            backbone = inspect_checkpoint(Origin(ckpt=file, name=name), settings.runs)
        except (BackboneError, OSError) as error:
            unreadable[name] = str(error)
            print(f"{name}  failed: {error}", file=sys.stderr, flush=True)
        else:
            rows += [plan_cell(cell) for cell in cells_of([backbone], keys, settings)]
    return with_passes_counted_once(with_classifiers(rows)), unreadable


def _require_data(rows: Sequence[PlannedCell], data: Path) -> None:
    """Raise DataError if a data set is absent or has too few images, or if no snapshot is fit."""
    lost = [row for row in rows if row.state in ("no data", "unfit")]
    if len(lost) < len(rows) and all(row.state == "unfit" for row in lost):
        return
    absent = dict.fromkeys(key for row in lost for key in row.missing)
    reasons = [f"no {', '.join(absent)} below {data}"] if absent else []
    reasons += dict.fromkeys(f"{row.cell.key}: {row.why}" for row in lost if row.why)
    if reasons:
        raise DataError(f"no snapshot can be evaluated: {'; '.join(reasons)}")


def run_snapshots(planned: Sequence[PlannedCell], files: Mapping[str, Path]) -> list[Cell]:
    """Run cells snapshot by snapshot; return those that failed.

    The weights of one snapshot at a time are in memory. files: the snapshots by their names.
    """
    failed: list[Cell] = []
    with overall_progress(planned) as overall:
        for name, group in groupby(planned, key=lambda row: row.cell.backbone.name):
            stop.exit_if_requested()
            failed += _run_snapshot(list(group), name, files[name], overall)
    return failed


def _run_snapshot(rows: list[PlannedCell], name: str, file: Path, overall: Overall) -> list[Cell]:
    try:
        backbone = load_backbone(file, name=name)
    except (BackboneError, OSError) as error:  # the file has changed since the plan
        for row in rows:
            overall.begin(f"{name}  {row.cell.key}")
            note_failure(row.cell, error)
            print(f"{row.cell.key}  failed: {error}", file=sys.stderr, flush=True)
            overall.end(row.gpu_hours, failed=True)
        return [row.cell for row in rows]
    cells = [replace(row, cell=replace(row.cell, backbone=backbone)) for row in rows]
    return run_in_turn(cells, overall)


def snapshot_files(request: RunAll) -> dict[str, Path]:
    """Return the snapshots of all folders by their names, curve by curve.

    ValueError for a wrong number of names, a name that occurs twice, or a folder without snapshots.
    """
    names = request.name or tuple(folder.resolve().parent.name for folder in request.snapshots)
    if len(names) != len(request.snapshots):
        raise ValueError(
            f"--name {' '.join(names)}: {len(names)} names for {len(request.snapshots)} folders of "
            "snapshots"
        )
    for name, folder in zip(names, request.snapshots, strict=True):
        check_row_name(name, folder.resolve().parent.name)
    if len(set(names)) < len(names):
        raise ValueError(f"curves {', '.join(names)}: a name occurs twice; give each a --name")
    files: dict[str, Path] = {}
    for curve, folder in zip(names, request.snapshots, strict=True):
        paths = sorted(folder.glob("*.pt"))
        if not paths:
            raise ValueError(
                f"{folder}: no snapshot; python -m pretrain RECIPE ... --snapshot-epochs 10 "
                "writes them"
            )
        files |= {f"{curve}{CURVE_SEPARATOR}{path.stem}": path for path in paths}
    return files
