"""States of the cells of runs on a cluster or on a machine: python -m benchmarks.status.

It prints for each cell whether it is queued, running, done, failed or cancelled, and for a failed
one the reason and the log; --watch shows them until all have ended. Nothing is computed or
submitted. Exit status: 0 no cell failed, 1 a cell failed or was cancelled, 2 the request is wrong.
"""

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cluster.cell_status import failed_helper_lines, render_all, submitted_states
from benchmarks.execution.states import (
    States,
    any_failed,
    count_words,
    in_order,
    is_over,
    local_states,
    render_states,
    write_status_page,
)
from pretrain.running.command_line import end_with_the_pipe, parse
from pretrain.running.console import is_live

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

INTERVAL_S = 5.0
LINES_BESIDE_ROWS = 6
"""Lines of a terminal that are no rows: headings, the counts, the hint."""


def all_states(runs: Path, results: Path | None = None) -> tuple[States, str]:
    """Return the states of all cells below the runs, and why Slurm does not answer, if so."""
    submitted, no_answer = submitted_states(runs, results)
    return [*local_states(runs, results), *submitted], no_answer


def print_states(runs: Path, results: Path | None = None) -> int:
    """Print the states of all cells once; return 1 if one failed or was cancelled, else 0."""
    states, no_answer = all_states(runs, results)
    if not states:
        print(f"nothing was submitted below {runs}" + (f" for {results}" if results else ""))
        return 0
    print("\n".join([render_all(states, no_answer), *failed_helper_lines(runs, results)]))
    return int(any_failed(states))


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
        words = (*one.cell.names, one.state, one.detail_with_log)
        table.add_row(*(Text(str(word), overflow="ellipsis", no_wrap=True) for word in words))
    more = f"... and {len(states) - room} more" if len(states) > room else ""
    end = f"{count_words(states)}   Ctrl-C ends this view only"
    return Group(table, Text(more), Text(end), Text(no_answer))


@dataclass(frozen=True, kw_only=True)
class Request:
    """Print the state of all cells that were submitted or started."""

    runs: Path = Path("runs")
    """Folder of caches and unfinished work, as it was given to run_all."""
    results: Path | None = None
    """Only cells whose records belong into this folder; all cells if not given."""
    watch: bool = False
    """Keep showing them until all have ended; writes the page runs/status.html, too."""


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    try:
        if request.results is not None and not request.results.is_dir():
            raise ValueError(f"--results {request.results}: no such folder")
        show = watch if request.watch else print_states
        return show(request.runs, request.results)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    end_with_the_pipe()
    sys.exit(main(sys.argv[1:]))
