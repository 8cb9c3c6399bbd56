"""States of the cells of runs on a cluster or on a machine: python -m benchmarks.status.

It prints for each cell whether it is queued, running, done, failed or cancelled, and for a failed
one the reason and the log; --watch prints changed counts until the end. Nothing is computed or
submitted. Exit status: 0 no cell failed, 1 a cell failed or was cancelled, 2 the request is wrong.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.execution.states import (
    all_states,
    any_failed,
    count_words,
    earlier_work,
    is_over,
    render_states,
    write_status_page,
)
from pretrain.running.command_line import one_line_errors, parse, run_command


def print_states(results: Path, runs: Path) -> int:
    """Print the states of all cells once; return 1 if one failed or was cancelled, else 0."""
    states, no_answer = all_states(results)
    if not states:
        print(f"no cell was started or submitted for {results}")
    else:
        print(render_states(states))
    if no_answer:
        print(f"the cluster does not answer: {no_answer}")
    if any_failed([state for state in states if state.stored.is_submitted]):
        print("run_all.py --retry-failed submits them again; each continues where it stopped")
    if line := earlier_work(runs):
        print(line)
    return int(any_failed(states))


def watch(results: Path, runs: Path, interval_s: float = 5.0) -> int:
    """Print changed counts until no cell runs or waits; return 1 if one failed or was cancelled.

    The page runs/status.html is written each time, too. Ctrl-C ends the view, not the run.
    """
    shown = ""
    try:
        while not is_over((found := all_states(results))[0]):
            states, no_answer = found
            write_status_page(results, runs, states)
            counts = "; ".join(filter(None, [count_words(states), no_answer]))
            if counts != shown:
                print(f"{time.strftime('%H:%M:%S')}  {counts}", file=sys.stderr, flush=True)
            shown = counts
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return 0
    if found[0]:
        write_status_page(results, runs, found[0])
    return print_states(results, runs)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Print the state of all cells that were submitted or started."""

    results: Path = Path("results")
    """Folder of records and tables, as it was given to run_all."""
    runs: Path = Path("runs")
    """Folder of the page status.html."""
    watch: bool = False
    """Print changed counts until all have ended, and write the page runs/status.html."""


@one_line_errors(ValueError)
def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    if not request.results.is_dir():
        raise ValueError(f"--results {request.results}: no such folder")
    show = watch if request.watch else print_states
    return show(request.results, request.runs)


if __name__ == "__main__":
    run_command(main, only_prints=True)
