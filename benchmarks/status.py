"""States of the cells of runs on a cluster or on a machine: python -m benchmarks.status.

It prints for each cell whether it is queued, running, done, failed or cancelled, and for a failed
one the reason and the log; --watch prints changed counts until the end. Nothing is computed or
submitted. Exit status: 0 no cell failed, 1 a cell failed or was cancelled, 2 the request is wrong.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.cell_status import failed_helper_lines, render_all, submitted_states
from benchmarks.execution.states import (
    CellState,
    States,
    any_failed,
    count_words,
    is_over,
    local_states,
    write_status_page,
)
from pretrain.running.command_line import one_line_errors, parse, run_command


def all_states(runs: Path, results: Path | None = None) -> tuple[States, str]:
    """Return the states of all cells below the runs, and why Slurm does not answer, if so."""
    submitted, no_answer = submitted_states(runs, results)
    latest: dict[str, CellState] = {}  # a cell that both know is shown once
    for one in [*local_states(runs, results), *submitted]:
        other = latest.setdefault(one.cell.identity, one)
        latest[one.cell.identity] = min(other, one, key=_rank)
    return list(latest.values()), no_answer


def _rank(one: CellState) -> int:
    """Return the place of a state among those of one cell: what goes on says most."""
    states = ("running", "queued", "done", "failed", "stopped", "cancelled")
    return states.index(one.state)


def print_states(runs: Path, results: Path | None = None) -> int:
    """Print the states of all cells once; return 1 if one failed or was cancelled, else 0."""
    states, no_answer = all_states(runs, results)
    if not states:
        print(f"nothing was started or submitted below {runs}" + f" for {results}" * bool(results))
        return 0
    print("\n".join([render_all(states, no_answer), *failed_helper_lines(runs, results)]))
    return int(any_failed(states))


def watch(runs: Path, results: Path | None = None, interval_s: float = 5.0) -> int:
    """Print changed counts until no cell runs or waits; return 1 if one failed or was cancelled.

    The page runs/status.html is written each time, too. Ctrl-C ends the view, not the run.
    """
    shown = ""
    try:
        while not is_over((found := all_states(runs, results))[0]):
            states, no_answer = found
            write_status_page(runs, states)
            counts = "; ".join(filter(None, [count_words(states), no_answer]))
            if counts != shown:
                print(f"{time.strftime('%H:%M:%S')}  {counts}", file=sys.stderr, flush=True)
            shown = counts
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return 0
    if found[0]:
        write_status_page(runs, found[0])
    return print_states(runs, results)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Print the state of all cells that were submitted or started."""

    runs: Path = Path("runs")
    """Folder of caches and unfinished work, as it was given to run_all."""
    results: Path | None = None
    """Only cells whose records belong into this folder; all cells if not given."""
    watch: bool = False
    """Print changed counts until all have ended, and write the page runs/status.html."""


@one_line_errors(ValueError)
def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    if request.results is not None and not request.results.is_dir():
        raise ValueError(f"--results {request.results}: no such folder")
    show = watch if request.watch else print_states
    return show(request.runs, request.results)


if __name__ == "__main__":
    run_command(main, only_prints=True)
