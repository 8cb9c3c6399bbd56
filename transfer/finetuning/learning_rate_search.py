"""The search for a learning rate on held-out images, and the training that follows it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch.distributed as dist

from transfer.finetuning.prepared import Prepared, TrainedNetwork
from transfer.running.console import print_line
from transfer.running.not_finite import NotFiniteError
from transfer.running.processes import this_process

Portion = TypeVar("Portion")
Trained = TypeVar("Trained", bound=TrainedNetwork)


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


def search_then_train(
    prepared: Prepared[Portion],
    rates: Sequence[float],
    default_rate: float,
    train: Callable[[Portion, float, str], Trained],
    score: Callable[[Trained], float],
    metric: str,
) -> Trained:
    """Search the rates on held-out images, if there are any; train on all images with the best.

    train: trains on a portion of the images with a rate; its third argument names the folder.
    score: returns the metric in percent.
    """
    held_out = prepared.held_out
    scores: dict[float, float] = {}
    if held_out is not None:

        def score_rate(rate: float) -> float:
            trained = train(held_out, rate, f"rate-{rate:g}")
            return score(trained) if this_process().is_main else math.nan

        scores = search_learning_rates(rates, score_rate, metric)
    trained = train(prepared.images, best_rate(scores, default_rate), "all")
    details = {**trained.details, f"held_out_{metric}": scores_by_name(scores)}
    return replace(trained, details=details)


def scores_by_name(scores: dict[float, float]) -> dict[str, float]:
    """Return scores by rate in a form that a record can store."""
    return {f"{rate:g}": score for rate, score in scores.items()}
