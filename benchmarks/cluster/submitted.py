"""Requests that concern submitted cells only: their states, a retry, a cancellation."""

from pathlib import Path

from benchmarks.cluster.arrays import cancel_all, retry_failed
from benchmarks.cluster.watch import print_states, watch
from benchmarks.planning.slurm_options import SlurmOptions


def manage_submitted_cells(runs: Path, options: SlurmOptions) -> int:
    """Print the states of submitted cells, after retrying or cancelling if requested.

    Returns 1 if any cell failed or was cancelled, else 0.
    """
    if options.retry_failed:
        retry_failed(runs, options)
    if options.cancel:
        print(f"{cancel_all(runs)} jobs cancelled")
    return watch(runs) if options.watch else print_states(runs)
