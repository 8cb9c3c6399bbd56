"""The search for a learning rate on held-out images."""

from collections.abc import Callable, Sequence

import torch.distributed as dist

from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import this_process
from transfer.running.console import print_line


def best_rate(scores: dict[float, float], default: float) -> float:
    """Return the rate with the highest score, or the default if there are no scores."""
    return max(scores, key=lambda rate: scores[rate]) if scores else default


def search_learning_rates(
    rates: Sequence[float], score: Callable[[float], float], metric: str
) -> dict[float, float]:
    """Return the score of each rate that does not diverge, the same on every process.

    score: function that trains with a rate and returns the metric, in percent; only the first
    process's number counts. NotFiniteError if all rates diverge.
    """
    process = this_process()
    scores: dict[float, float] = {}
    for rate in rates:
        try:
            shared = [score(rate)]
        except NotFiniteError:
            continue
        if process.num_processes > 1:
            dist.broadcast_object_list(shared)
        scores[rate] = shared[0]
        if process.is_main:
            print_line("rate", f"{rate:g}: {metric} {shared[0]:.2f} on held-out images")
    if rates and not scores:
        raise NotFiniteError(f"all of the learning rates {tuple(rates)} diverged")
    return scores


def scores_by_name(scores: dict[float, float]) -> dict[str, float]:
    """Return scores by rate in a form that a record can store."""
    return {f"{rate:g}": score for rate, score in scores.items()}
