"""Everything that is shown of a results folder, read once; its numbers as rows of results.csv."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results.numbers import Number, numbers_of
from benchmarks.results.records import SMALL_DATA, Results, read_results, require_folder
from benchmarks.results.tables import csv_text
from benchmarks.results.verdicts import Pair, pairs_of, verdict_words

CSV_FILE = "results.csv"
CSV_COLUMNS = (
    "backbone",
    "task",
    "protocol",
    "schedule",
    "seed",
    "engine",
    "metric",
    "value",
    "primary",  # the metric represents the task if one number is shown
    "data",
    "departures",
    "comparable",  # computed under the paper's protocol, at its length, on full data
    "verdict",  # verdicts on the published counterparts of its seeds' mean
    "record",  # path of the record in the results folder
    "wall_s",
    "peak_memory_gb",
)


class Contents(NamedTuple):
    """Runs, numbers and pairs of a results folder."""

    folder: Path
    results: Results
    numbers: list[Number]
    snapshots: list[Number]
    """Numbers of the snapshots of pre-training runs."""
    pairs: list[Pair]


def read_contents(folder: Path) -> Contents:
    """Read a results folder; FileNotFoundError if there is none."""
    require_folder(folder)
    results = read_results(folder)
    numbers = numbers_of(results.runs)
    snapshots = numbers_of(results.snapshots, by_pretraining=True)
    return Contents(folder, results, numbers, snapshots, pairs_of(numbers))


def csv_rows(contents: Contents) -> Iterator[dict[str, Any]]:
    """Yield one row of CSV_COLUMNS per record and metric, in the order of the records' paths."""
    verdicts = verdict_words(contents.pairs)
    for run in contents.results.done:
        for metric, value in run.metrics.items():
            yield {
                "backbone": run.label,
                "task": run.task,
                "protocol": run.protocol,
                "schedule": run.schedule,
                "seed": run.seed,
                "engine": run.engine,
                "metric": metric,
                "value": value,
                "primary": metric == run.primary_metric,
                "data": SMALL_DATA.get(run.small, "full data"),
                "departures": "; ".join(run.departures),
                "comparable": not run.reasons.words,
                "verdict": verdicts.get((run.file, metric), ""),
                "record": run.file,
                "wall_s": run.record.wall_s,
                "peak_memory_gb": run.record.peak_memory_gb,
            }


def results_csv(contents: Contents) -> str:
    """Return the text of results.csv."""
    rows = ([str(value) for value in row.values()] for row in csv_rows(contents))
    return csv_text(CSV_COLUMNS, rows)
