"""A live view of the cells of a run on this machine or on a cluster, from the files they write."""

import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cluster.cell_status import (
    failed_helper_lines,
    print_submitted,
    submitted_states,
)
from benchmarks.cluster.submission import submissions
from benchmarks.execution.run_file import local_states
from benchmarks.execution.states import (
    States,
    any_failed,
    count_words,
    in_order,
    is_over,
    render_states,
    write_status_page,
)
from pretrain.running.atomic_files import WriteError
from transfer.running.console import is_live

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

INTERVAL_S = 5.0
LINES_BESIDE_ROWS = 6
"""Lines of a terminal that are no rows: headings, the counts, the hint."""


def all_states(runs: Path, results: Path | None = None) -> tuple[States, str]:
    """Return the states of all cells below the runs, and why Slurm does not answer, if so."""
    submitted, no_answer = submitted_states(runs, results)
    short = [
        replace(one, detail=one.detail + f"; log: {one.log}" * (one.state == "failed"), log="")
        for one in submitted
    ]
    return [*local_states(runs, results), *short], no_answer


def print_states(runs: Path, results: Path | None = None) -> int:
    """Print the states of all cells once; return 1 if one failed or was cancelled, else 0."""
    local = local_states(runs, results)
    if local:
        print(render_states(local))
    submitted = 0
    if not local or any(submissions(runs)):
        submitted = print_submitted(runs, results)
    return max(submitted, int(any_failed(local)))


def watch(runs: Path, results: Path | None = None, interval_s: float = INTERVAL_S) -> int:
    """Show the states until no cell runs or waits; return 1 if one failed or was cancelled.

    The page runs/status.html is written each time, too. Ctrl-C ends the view, not the run.
    """
    states, _ = all_states(runs, results)
    if not states:
        print(f"nothing was started below {runs}" + (f" for {results}" if results else ""))
        return 0
    shown = ""
    try:
        with _screen() as screen:
            while True:
                states, no_answer = all_states(runs, results)
                with suppress(WriteError):  # a colleague's folder, or a full disk
                    write_status_page(runs, states)
                words = count_words(states)
                if screen is not None:
                    screen.update(_table(states, no_answer, screen.console.height), refresh=True)
                elif words != shown:
                    print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)
                shown = words
                if is_over(states):
                    break
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return 0
    print("\n".join([render_states(in_order(states)), *failed_helper_lines(runs, results)]))
    return int(any_failed(states))


def _screen() -> "AbstractContextManager[Live | None]":
    """Return the screen of a terminal that is drawn again in place; None elsewhere."""
    if not is_live():
        return nullcontext()
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(stderr=True), auto_refresh=False, screen=True)


def _table(states: States, no_answer: str, height: int) -> "Group":
    """Return a table of as many states as fit this number of lines, and the counts."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table("backbone", "task", "seed", "state", "detail", expand=True, box=None)
    room = max(1, height - LINES_BESIDE_ROWS)
    for one in in_order(states)[:room]:
        words = (one.cell.backbone, one.cell.key, str(one.cell.seed), one.state, one.detail)
        table.add_row(*(Text(word, overflow="ellipsis", no_wrap=True) for word in words))
    more = f"... and {len(states) - room} more" if len(states) > room else ""
    end = f"{count_words(states)}   Ctrl-C ends this view only"
    return Group(table, Text(more), Text(end), Text(no_answer))
