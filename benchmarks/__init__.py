"""Evaluate checkpoints on all tasks, and compare them with the papers' tables.

run_all.py      the main command: plan, run, tables
follow.py       run_all.py --follow: evaluates the checkpoints of a running training
tables.py       python -m benchmarks.tables: from records to results/tables
report.py       python -m benchmarks.report: one HTML page of all results
figures.py      python -m benchmarks.figures: the papers' figures as CSV, SVG and PNG
explain.py      python -m benchmarks.explain: details of one result
power.py        python -m benchmarks.power: differences that seeds and test images can detect
verify.py       python -m benchmarks.verify: checks records for contradictions
export.py       python -m benchmarks.export: the metadata of a model card
words.py        commands, words and groups that several of these modules need
scripts.py      the commands of an installed wheel, such as ssl-benchmark
gpu_check.py    python -m benchmarks.gpu_check: how fast this machine's GPU is, on one page
planning/       what a run would do, and its cost
execution/      jobs on this machine, states of cells, the end of a run
cluster/        jobs as arrays on a cluster
gpu/            the measurements of gpu_check.py
report_parts/   the sections of the report, its template, style and script
drawing/        figures from records and logs
results/        numbers, comparisons and tables from records
published/      the numbers printed in papers, one file each
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read_results(results: Path | str = "results") -> pd.DataFrame:
    """Return all results in a folder, with the columns of results.csv.

    A result under a paper's protocol on full data has one row per published counterpart, given by
    paper, table, row and task as in `read_published`. These columns are empty for other results.
    """
    import pandas as pd

    from benchmarks.results.contents import CSV_COLUMNS, csv_rows, read_contents

    contents = read_contents(Path(results))
    counterparts: dict[tuple[str, str], list[dict[str, str]]] = {}
    for ours, printed, *_ in contents.pairs:
        table = {"paper": printed.paper.name, "table": printed.table.number}
        for file in ours.files:
            counterparts.setdefault((file, ours.metric), []).append(
                table | {"row": printed.row.label}
            )
    none = [{"paper": "", "table": "", "row": ""}]
    rows = [
        row | counterpart
        for row in csv_rows(contents)
        for counterpart in counterparts.get((row["record"], row["metric"]), none)
    ]
    return pd.DataFrame(rows, columns=[*CSV_COLUMNS, *none[0]])


def read_published() -> pd.DataFrame:
    """Return every published number: paper, table, row, task, metric, value in percent."""
    import pandas as pd

    from benchmarks.results.published import printed

    return pd.DataFrame(
        [
            {
                "paper": result.paper.name,
                "table": result.table.number,
                "row": result.row.label,
                "task": result.task,
                "metric": result.column.metric,
                "value": result.value,
            }
            for result in printed()
            if result.table.kind == "results"
        ]
    )
