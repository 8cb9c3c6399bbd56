"""Curves of tasks over the snapshots of pre-training runs: python -m benchmarks.curves.

    python -m pretrain simaffinity/cifar10-fig2 --data DIR --out runs/fig2 --snapshot-epochs 10
    python -m benchmarks.curves --snapshots runs/fig2/snapshots --name SimAffinity --data DATA

`benchmarks/run_all.py --snapshots` does the same.
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

from transfer.backbone import BackboneError
from transfer.datasets.images import DataError
from transfer.frozen.precision import RequestedPrecision
from transfer.running import stop
from transfer.running.folders import data_folder
from transfer.running.option_ranges import check_ranges


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
    """Memory in GB per process for the decoded training images of a linear probe or of few labels,
    which are decoded for every pass if they need more; default a quarter of the free memory,
    divided by the processes that run side by side."""


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    from benchmarks.execution.snapshots import evaluate_snapshots

    request = tyro.cli(Request, args=words, description=__doc__)
    stop.listen()
    try:
        check_ranges(request)
        return evaluate_snapshots(request, request.tasks)
    except (BackboneError, DataError, ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(stop.exit_status(main, sys.argv[1:]))
