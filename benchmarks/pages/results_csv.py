"""Every number of ours: one row per record and metric, for the page's list and results.csv."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages.against import compared_everywhere
from benchmarks.pages.blocks import reasons_of
from benchmarks.pages.records import SMALL_DATA, Result, Results
from benchmarks.pages.table_rows import csv_cell
from pretrain.running.atomic_files import write_text

FILE = "results.csv"


COLUMNS = (
    "backbone",
    "task",
    "protocol",
    "schedule",
    "seed",
    "engine",
    "metric",
    "value",
    "primary",  # the metric represents the task where one number is shown
    "data",
    "departures",
    "comparable",  # computed under the paper's protocol, at its length, on full data
    "verdict",  # verdicts on the published counterparts of its seeds' mean
    "record",  # path of the record below the results
)


def numbers_of(results: Results) -> list[dict[str, Any]]:
    """Return one row of COLUMNS per record and metric, in the order of the records' paths."""
    verdicts = verdicts_of(results.done)
    return [
        {name: getattr(result, name) for name in ("task", "protocol", "schedule", "seed", "engine")}
        | {
            "backbone": result.model.label,
            "metric": metric,
            "value": value,
            "primary": metric == result.primary_metric,
            "data": SMALL_DATA.get(result.small, "full data"),
            "departures": "; ".join(result.departures),
            "comparable": not reasons_of(result).words(),
            "verdict": "; ".join(verdicts.get((result.file, metric), ())),
            "record": result.file,
        }
        for result in results.done
        for metric, value in result.metrics.items()
    ]


def verdicts_of(done: Sequence[Result]) -> dict[tuple[str, str], list[str]]:
    """Return the verdicts, each with its interval and place, by record and metric.

    An example: "reproduced [-0.31, +0.27] (LORAC, Table II)".
    """
    verdicts: dict[tuple[str, str], dict[str, None]] = {}
    for paper, table, pair in compared_everywhere(done):
        for file in pair.files if pair.judged else ():
            named = verdicts.setdefault((file, pair.column.metric), {})
            interval = pair.difference.interval_text()
            named[f"{pair.word} {interval} ({paper.name}, {table.number})"] = None
    return {key: list(named) for key, named in verdicts.items()}


def write_csv(folder: Path, results: Results) -> None:
    """Write results.csv into the results folder; WriteError if that fails."""
    import pandas as pd

    rows = [
        {key: csv_cell(value) if isinstance(value, str) else value for key, value in row.items()}
        for row in numbers_of(results)
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    write_text(folder / FILE, frame.to_csv(index=False), "--results")
