"""Print the states of all evaluations: python -m benchmarks.status.

Each evaluation is queued, running, done, failed or cancelled. For a failed one, the reason and the
log are printed. --watch prints counts until all have ended. Nothing is computed or submitted. Exit
status: 0 none failed, 1 one failed or was cancelled, 2 the request is wrong.
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
    """Print the states of all cells; return 1 if one failed."""
    states, no_answer = all_states(results)
    if not states:
        print(f"no evaluations were started or submitted with --results {results}")
    else:
        print(render_states(states))
    if no_answer:
        print(f"the cluster does not respond: {no_answer}")
    if any_failed([state for state in states if state.stored.is_submitted]):
        print("to submit them again: run_all.py --retry-failed (each resumes where it stopped)")
    if line := earlier_work(runs):
        print(line)
    return int(any_failed(states))


def watch(results: Path, runs: Path, interval_s: float = 5.0) -> int:
    """Print counts when they change, until no cell runs or waits.

    Each time, the page runs/status.html is updated. Ctrl-C ends the view, not the run. Returns 1 if
    a cell failed or was cancelled, otherwise 0.
    """
    previous = ""
    try:
        while not is_over((current := all_states(results))[0]):
            states, no_answer = current
            write_status_page(results, runs, states)
            counts = "; ".join(filter(None, [count_words(states), no_answer]))
            if counts != previous:
                print(f"{time.strftime('%H:%M:%S')}  {counts}", file=sys.stderr, flush=True)
            previous = counts
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return 0
    if current[0]:
        write_status_page(results, runs, current[0])
    return print_states(results, runs)


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """Print the states of all evaluations that were submitted or started."""

    results: Path = Path("results")
    """Folder of records and tables, as passed to run_all."""
    runs: Path = Path("runs")
    """Folder for status.html."""
    watch: bool = False
    """Print the number of evaluations in each state whenever it changes, until all have ended, and
    update runs/status.html."""


@one_line_errors(ValueError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(StatusOptions, args, description=__doc__)
    if not request.results.is_dir():
        raise ValueError(f"--results {request.results}: no such folder")
    show = watch if request.watch else print_states
    return show(request.results, request.runs)


if __name__ == "__main__":
    run_command(main, only_prints=True)
