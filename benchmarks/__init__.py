"""Evaluation of checkpoints on every task, and tables beside those of the papers.

run_all.py      the main command: plan, run, tables
tables.py       python -m benchmarks.tables: from records to results/tables
report.py       python -m benchmarks.report: one HTML page of all results
figures.py      python -m benchmarks.figures: the papers' figures as CSV, SVG and PNG
explain.py      python -m benchmarks.explain: everything behind one number
status.py       python -m benchmarks.status: the states of cells on a cluster
gpu_check.py    python -m benchmarks.gpu_check: what this machine's GPUs compute, and how fast
planning/       what a run would do, what it costs, the resources it needs on a cluster
execution/      one cell in a process of its own, cells side by side
cluster/        cells as job arrays of a cluster, and their states
gpu/            what is measured of a machine's GPUs, and its page
report_parts/   the parts of that page, its templates, style and script
drawing/        from records and logs to figures
pages/          from records to tables
published/      the numbers printed in papers, one file each
speed/          several ways to do one thing, in turn in one process, and their ratio
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read_results(results: Path | str = "results") -> pd.DataFrame:
    """Return the numbers of all records below a folder, with the columns of results.csv.

    A number under a paper's protocol on full data has a row for each published counterpart, whose
    paper, table, row and task join it with `read_published`; these are empty for other numbers.
    """
    import pandas as pd

    from benchmarks.pages.against import compared_everywhere
    from benchmarks.pages.records import read_results
    from benchmarks.pages.results_csv import COLUMNS, numbers_of

    found = read_results(Path(results))
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    for paper, table, pair in compared_everywhere(found.done):
        where = {"paper": paper.name, "table": table.number, "row": pair.row.label}
        for file in pair.files:
            rows.setdefault((file, pair.column.metric), []).append(where)
    none = [{"paper": "", "table": "", "row": ""}]
    return pd.DataFrame(
        [
            number | where
            for number in numbers_of(found)
            for where in rows.get((number["record"], number["metric"]), none)
        ],
        columns=[*COLUMNS, *none[0]],
    )


def read_published() -> pd.DataFrame:
    """Return every published number: paper, table, row, task, metric, value in percent."""
    import pandas as pd

    from benchmarks.pages.published import printed_numbers

    return pd.DataFrame(
        [
            {
                "paper": paper.name,
                "table": table.number,
                "row": row.label,
                "task": row.task or column.task,
                "metric": column.metric,
                "value": value,
            }
            for paper, table, row, column, value in printed_numbers()
            if table.kind == "results"
        ]
    )
