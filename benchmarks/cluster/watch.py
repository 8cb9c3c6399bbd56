"""A live view of the cells of a run on this machine or on a cluster, from the files they write."""

import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.cluster.cell_status import failed_helper_lines, print_statuses, statuses
from benchmarks.cluster.submission import submissions
from benchmarks.execution.run_file import local_rows
from benchmarks.execution.status_rows import (
    StatusRow,
    count_words,
    in_order,
    is_over,
    render_rows,
    write_status_page,
)
from pretrain.running.atomic_files import WriteError
from transfer.running.console import is_live

INTERVAL_S = 5.0
LINES_BESIDE_ROWS = 6
"""Lines of a terminal that are no rows: headings, the counts, the hint."""


def all_rows(runs: Path, results: Path | None = None) -> tuple[list[StatusRow], str]:
    """Return the states of all cells below the runs, and why Slurm does not answer, if so."""
    submitted, no_answer = statuses(runs, results)
    rows = [
        replace(row, detail=row.detail + f"; log: {row.log}" * (row.state == "failed"), log="")
        for row in (status.row for status in submitted)
    ]
    return [*local_rows(runs, results), *rows], no_answer


def print_states(runs: Path, results: Path | None = None) -> int:
    """Print the states of all cells once; return 1 if one failed or was cancelled, else 0."""
    local = local_rows(runs, results)
    if local:
        print(render_rows(local))
    submitted = 0
    if not local or any(submissions(runs)):
        submitted = print_statuses(runs, results)
    return max(submitted, int(any(row.state == "failed" for row in local)))


def watch(runs: Path, results: Path | None = None, interval_s: float = INTERVAL_S) -> int:
    """Show the states until no cell runs or waits; return 1 if one failed or was cancelled.

    The page runs/status.html is written each time, too. Ctrl-C ends the view, not the run.
    """
    rows, _ = all_rows(runs, results)
    if not rows:
        print(f"nothing was started below {runs}" + (f" for {results}" if results else ""))
        return 0
    try:
        rows = _view(runs, results, interval_s) if is_live() else _lines(runs, results, interval_s)
    except KeyboardInterrupt:
        return 0
    print("\n".join([render_rows(in_order(rows)), *failed_helper_lines(runs, results)]))
    return int(any(row.state in ("failed", "cancelled") for row in rows))


def _lines(runs: Path, results: Path | None, interval_s: float) -> list[StatusRow]:
    """Print the counts whenever they have changed; return the last rows."""
    shown = ""
    while True:
        rows, _ = all_rows(runs, results)
        with suppress(WriteError):  # a colleague's folder, or a full disk, can still be watched
            write_status_page(runs, rows)
        words = count_words(rows)
        if words != shown:
            shown = words
            print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)
        if is_over(rows):
            return rows
        time.sleep(interval_s)


def _view(runs: Path, results: Path | None, interval_s: float) -> list[StatusRow]:
    """Show a table that is drawn again in place; return the last rows."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            rows, no_answer = all_rows(runs, results)
            with suppress(WriteError):
                write_status_page(runs, rows)
            table = Table("backbone", "task", "seed", "state", "detail", expand=True, box=None)
            room = max(1, console.height - LINES_BESIDE_ROWS)
            for row in in_order(rows)[:room]:
                words = (row.backbone, row.key, str(row.seed), row.state, row.detail)
                table.add_row(*(Text(word, overflow="ellipsis", no_wrap=True) for word in words))
            more = f"... and {len(rows) - room} more" if len(rows) > room else ""
            end = f"{count_words(rows)}   Ctrl-C ends this view only"
            live.update(Group(table, Text(more), Text(end), Text(no_answer)), refresh=True)
            if is_over(rows):
                return rows
            time.sleep(interval_s)
