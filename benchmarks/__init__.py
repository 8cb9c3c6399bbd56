"""Evaluation of checkpoints on every task, and tables beside those of the papers.

run_all.py      the main command: plan, run, tables
tables.py       python -m benchmarks.tables: from records to results/tables
report.py       python -m benchmarks.report: one HTML page of all results
figures.py      python -m benchmarks.figures: the papers' figures as CSV, SVG and PNG
explain.py      python -m benchmarks.explain: everything behind one number
power.py        python -m benchmarks.power: what seeds and test images can show
verify.py       python -m benchmarks.verify: contradictions in records, also of others
export.py       python -m benchmarks.export: the metadata of a model card
status.py       python -m benchmarks.status: the states of all cells
scripts.py      the commands of an installed wheel: ssl-benchmark and its siblings
gpu_check.py    python -m benchmarks.gpu_check: how fast this machine's GPU is, on one page
planning/       what a run would do, what it costs, the resources it needs on a cluster
execution/      jobs: cells of one process; jobs side by side; states of cells; the end of a run
cluster/        jobs as arrays of a cluster, and their states
gpu/            what is measured of a machine's GPUs
report_parts/   the sections of that page, its template, style and script
drawing/        from records and logs to figures
results/        from records to every number that is shown
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

    from benchmarks.results.contents import CSV_COLUMNS, csv_rows, read_contents

    contents = read_contents(Path(results))
    counterparts: dict[tuple[str, str], list[dict[str, str]]] = {}
    for ours, printed, *_ in contents.pairs:
        where = {"paper": printed.paper.name, "table": printed.table.number}
        for file in ours.files:
            counterparts.setdefault((file, ours.metric), []).append(
                where | {"row": printed.row.label}
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
                "paper": one.paper.name,
                "table": one.table.number,
                "row": one.row.label,
                "task": one.task,
                "metric": one.column.metric,
                "value": one.value,
            }
            for one in printed()
            if one.table.kind == "results"
        ]
    )
