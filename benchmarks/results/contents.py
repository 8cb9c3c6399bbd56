"""Contents of results folders, read once, and the rows of results.csv."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.results.numbers import Number, numbers_of
from benchmarks.results.paper_page import PaperTables, papers_tables
from benchmarks.results.records import (
    Results,
    print_unused,
    read_results,
    require_folder,
)
from benchmarks.results.tables import csv_text
from benchmarks.results.verdicts import Pair, pairs_of, verdict_words

REFERENCE_FOLDER = Path(__file__).parents[2] / "results" / "reference"
"""The suite's own results in a checkout."""
CSV_FILE = "results.csv"
CSV_COLUMNS = (
    *("backbone", "task", "protocol", "schedule", "seed", "engine", "metric", "value"),
    "primary",  # the metric represents the task if one number is shown
    *("data", "departures"),
    "comparable",  # computed under the paper's protocol, at its length, on full data
    "verdict",  # verdicts on the published counterparts of its seeds' mean
    "record",  # path of the record in the results folder
    *("wall_s", "peak_memory_gb"),
)


@dataclass(frozen=True)
class Contents:
    """Runs, numbers and pairs of one or several results folders."""

    folder: Path
    """The first folder: pages are written here."""
    results: Results
    numbers: Sequence[Number]
    snapshots: Sequence[Number]
    """Numbers of the snapshots of pre-training runs."""
    pairs: Sequence[Pair]
    further_folders: tuple[Path, ...] = ()
    """Further folders with records to show."""

    def command(self, module: str) -> str:
        """Return the command that writes pages of these folders, such as benchmarks.tables."""
        folders = [folder.as_posix() for folder in (self.folder, *self.further_folders)]
        return f"python -m {module} --results {shlex.join(folders)}"

    @cached_property
    def papers_tables(self) -> list[PaperTables]:
        """The papers' tables with our rows, for pages and report."""
        return papers_tables(self.numbers)


def results_folders(results: Sequence[Path], *, with_reference: bool) -> list[Path]:
    """Return the folders to read without duplicates, the suite's own last."""
    folders = [*results, *([REFERENCE_FOLDER] if with_reference else [])]
    return [*{folder.resolve(): folder for folder in reversed(folders)}.values()][::-1]


def read_contents(folder: Path, *further_folders: Path) -> Contents:
    """Read results folders, and print unused files; FileNotFoundError if a folder does not exist.

    folder: pages are written here. further_folders: their records are shown, too.
    """
    for path in (folder, *further_folders):
        require_folder(path)
    results = read_results(folder, further_folders)
    print_unused(results.unused, folder)
    numbers = numbers_of(results.runs)
    snapshots = numbers_of(results.snapshots, by_pretraining=True)
    return Contents(folder, results, numbers, snapshots, pairs_of(numbers), further_folders)


@contextmanager
def named_folders(folders: Sequence[Path]) -> Iterator[None]:
    """Name the folders in a ValueError, such as one about a checkpoint without results."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} (--results {shlex.join(map(str, folders))})") from error


def csv_rows(contents: Contents) -> Iterator[dict[str, Any]]:
    """Yield a row of CSV_COLUMNS per record and metric, by path."""
    verdicts = verdict_words(contents.pairs)
    for run in contents.results.succeeded:
        for metric, value in run.metrics.items():
            yield {
                "backbone": run.backbone.label,
                **{name: getattr(run, name) for name in ("task", "protocol", "schedule", "seed")},
                "engine": run.record.engine,
                "metric": metric,
                "value": value,
                "primary": metric == run.primary_metric,
                "data": run.reasons.data or "full data",
                "departures": "; ".join(run.record.departures),
                "comparable": run.reasons.comparable,
                "verdict": verdicts.get((run.file, metric), ""),
                "record": run.file,
                "wall_s": run.record.wall_s,
                "peak_memory_gb": run.record.peak_memory_gb,
            }


def results_csv(contents: Contents) -> str:
    """Return the text of results.csv."""
    return csv_text(CSV_COLUMNS, (row.values() for row in csv_rows(contents)))
