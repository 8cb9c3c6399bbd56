"""States of the cells of runs on a cluster or on a machine: python -m benchmarks.status.

It prints for each cell whether it is queued, running, done, failed or cancelled, and for a failed
one the reason and the log; --watch shows them until all have ended. Nothing is computed or
submitted. Exit status: 0 no cell failed, 1 a cell failed or was cancelled, 2 the request is wrong.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.watch import print_states, watch
from pretrain.running.command_line import end_with_the_pipe, parse


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
