"""Learning rates tried on held-out images."""

from collections.abc import Callable, Sequence

import torch.distributed as dist

from transfer.console import say
from transfer.finetune import NotFiniteError
from transfer.processes import this_process


def best(found: dict[float, float], otherwise: float) -> float:
    """The rate with the highest score; another where none was tried."""
    return max(found, key=lambda rate: found[rate]) if found else otherwise


def tried(
    rates: Sequence[float], score: Callable[[float], float], metric: str
) -> dict[float, float]:
    """The score of each rate that does not diverge, the same on every process.

    score: trains with a rate and measures the metric, in percent; only the first process's number
    counts. NotFiniteError if all rates diverge.
    """
    process = this_process()
    found: dict[float, float] = {}
    for rate in rates:
        try:
            told = [score(rate)]
        except NotFiniteError:
            continue
        if process.num_processes > 1:
            dist.broadcast_object_list(told)
        found[rate] = told[0]
        if process.speaks:
            say("rate", f"{rate:g}: {metric} {told[0]:.2f} on held-out images")
    if rates and not found:
        raise NotFiniteError(f"all of the learning rates {tuple(rates)} diverged")
    return found


def by_name(found: dict[float, float]) -> dict[str, float]:
    """Scores by rate as a record can hold them."""
    return {f"{rate:g}": score for rate, score in found.items()}
