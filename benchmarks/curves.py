"""Curves of tasks over the snapshots of pre-training runs: python -m benchmarks.curves.

    python -m pretrain simaffinity/cifar10-fig2 --data DIR --out runs/fig2 --snapshot-epochs 10
    python -m benchmarks.curves --snapshots runs/fig2/snapshots --name SimAffinity --data DATA

Each snapshot gets a record below results/records/snapshots. A curve becomes a CSV file in
results/figures, and the curves of a task stand beside each other in results/tables. Finished cells
are not run again. A snapshot that fails leaves its reason in the tables and does not stop the
others. Exit status: 0 all is written, 1 a snapshot failed or the tables could not be written, 2 the
request is wrong.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from benchmarks.execution.sequence import run_cell
from benchmarks.pages.curve_page import CURVE_SEPARATOR
from benchmarks.planning.cells import cells_of, settings_of, split_words
from benchmarks.planning.plan import plan_cell
from benchmarks.tables import update_tables
from transfer.backbone import BackboneError, load_backbone
from transfer.cells.request import CellSettings
from transfer.datasets.images import DataError
from transfer.frozen.precision import RequestedPrecision
from transfer.running import stop
from transfer.running.folders import check_writable, data_folder
from transfer.running.option_ranges import check_ranges
from transfer.running.row_names import check_row_name
from transfer.tasks import task_of


@dataclass(frozen=True, kw_only=True)
class Request:
    """Evaluate every snapshot of pre-training runs."""

    snapshots: tuple[Path, ...]
    """Folders written by `python -m pretrain ... --snapshot-epochs N`."""
    name: tuple[str, ...] = ()
    """Names of the curves, one per folder; the names of the runs' folders if not given."""
    tasks: str = "cifar10_knn"
    """Task ids, separated by commas."""
    data: Path = field(default_factory=data_folder)
    """Folder of all data sets; $DATASETS or ./datasets."""
    results: Path = Path("results")
    """Folder of records and tables."""
    runs: Path = Path("runs")
    """Folder of caches and unfinished work."""
    schedule: str = "paper"
    """paper, short (a tenth of its length), smoke (a few steps), or a share such as 0.02."""
    tolerate: int = 0
    """Missing, surplus or unreadable images that a data set may have."""
    features_in: RequestedPrecision = "auto"
    """Arithmetic of frozen networks; auto: bfloat16 on a GPU, float32 elsewhere."""
    image_memory_gb: float | None = None
    """Memory in GB for the decoded training images of a linear probe, which are decoded for every
    pass if they need more; default a quarter of the free memory."""


def run(request: Request) -> int:
    """Evaluate all snapshots and write the tables; return the exit status."""
    check_writable(request.results, "--results")
    check_writable(request.runs, "--runs")
    settings = settings_of(request, snapshots=True)
    keys = split_words(request.tasks)
    for key in keys:
        task_of(key)  # an unknown task must fail before a file is loaded
    names = request.name or tuple(folder.resolve().parent.name for folder in request.snapshots)
    failed = 0
    for curve, files in zip(names, snapshot_files(request, names), strict=True):
        for file in files:
            stop.exit_if_requested()
            failed += not evaluate_snapshot(
                file, f"{curve}{CURVE_SEPARATOR}{file.stem}", keys, settings
            )
    tables_written = update_tables(request.results)
    print(f"{failed} snapshots failed", file=sys.stderr)
    return int(failed > 0 or not tables_written)


def evaluate_snapshot(file: Path, name: str, keys: list[str], settings: CellSettings) -> bool:
    """Evaluate a snapshot on all tasks; return whether every task has its record.

    DataError if a data set is absent or has too few images.
    """
    try:
        backbone = load_backbone(file, name=name)
    except (BackboneError, OSError) as error:
        print(f"{name}  failed: {error}", file=sys.stderr, flush=True)
        return False
    cells = cells_of([backbone], keys, settings)
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


def snapshot_files(request: Request, names: tuple[str, ...]) -> list[list[Path]]:
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


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = tyro.cli(Request, args=words, description=__doc__)
    stop.listen()
    try:
        check_ranges(request)
        return run(request)
    except (BackboneError, DataError, ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(stop.exit_status(main, sys.argv[1:]))
