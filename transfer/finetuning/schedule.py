"""The settings that the loop reads, recipes, learning rates and the search for the best one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from pretrain.running.console import print_line
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import this_process, wait_for_all

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bfloat16", "float16"]


class TrainingSchedule:
    """The part of a frozen dataclass of settings that does not concern network and images."""

    iterations: int
    """Optimizer steps in total."""
    milestones: tuple[int, ...]
    """Iterations after which the learning rate decays."""
    decay: float
    """Factor of the learning rate at each milestone."""
    decay_shape: Literal["steps", "linear", "cosine"] = "steps"
    """Course of the learning rate: by milestones, or to 0 over all iterations, from the first."""
    learning_rate: float
    """Learning rate after the warm-up."""
    warmup_iterations: int
    """Iterations over which the learning rate rises linearly; 0: none."""
    warmup_factor: float
    """Share of the learning rate at which the warm-up starts."""
    batch_size: int
    """Images per optimizer step, over all GPUs and accumulated passes."""
    accumulated: int
    """Passes whose gradients make one step; each has its own norm statistics."""
    precision: Precision
    """Precision of convolutions and matrix products in training (autocast)."""
    precise_norm_batches: int
    """Batches over which norms' statistics are averaged at the end; 0: moving averages stay."""


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set each group's learning rate to its "rate_factor" (1 if absent) times `rate`."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_factor", 1.0)


def learning_rate(course: TrainingSchedule, iteration: int) -> float:
    """Return the learning rate of the step after `iteration` finished ones; milestones decay it.

    The warm-up rises linearly to the value that the milestones give at its end. Without milestones
    it multiplies the rate that falls from the first iteration, as in mmsegmentation and DINOv3.
    """
    warmup = course.warmup_iterations
    if course.decay_shape != "steps":
        done = iteration / course.iterations
        share = 1 - done if course.decay_shape == "linear" else (1 + math.cos(math.pi * done)) / 2
        risen = min(1.0, iteration / warmup) if warmup else 1.0
        factor = course.warmup_factor + (1 - course.warmup_factor) * risen
        return course.learning_rate * share * factor
    drops = sum(max(iteration, warmup) >= milestone for milestone in course.milestones)
    end = course.learning_rate * float(course.decay**drops)
    if iteration >= warmup:
        return end
    start = course.learning_rate * course.warmup_factor
    return start + (end - start) * iteration / warmup


class FineTuningRecipe(TrainingSchedule, ABC):
    """A frozen dataclass with every setting of a network, its training and its test."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    decay = 0.1
    """Value of detectron2 and mmsegmentation."""
    sgd_momentum: float
    """Momentum of the optimizer."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"]
    """Kind of norm layer that shares statistics among GPUs; on one GPU or a CPU it is plain BN."""

    @abstractmethod
    def tiny(self) -> Self:
        """Return a recipe for a few steps of a narrow network on small images, to test the code."""

    @abstractmethod
    def at_size(self, px: int, /) -> Self:
        """Return the recipe for images of another size."""


AnyRecipe = TypeVar("AnyRecipe", bound=FineTuningRecipe)


def search_learning_rates(
    rates: Sequence[float], score: Callable[[float], float], metric: str
) -> dict[float, float]:
    """Return the score of each rate that does not diverge, the same on every process.

    score: function that trains with a rate and returns the metric, in percent; only the first
    process's number counts. NotFiniteError if all rates diverge.
    """
    import torch.distributed as dist

    process = this_process()
    scores: dict[float, float] = {}
    for rate in rates:
        try:
            shared = [score(rate)]
        except NotFiniteError as error:
            if process.num_processes > 1 and error.__cause__ is not None:
                raise  # in the midst of a step of this process alone, for which the others wait
            continue
        if process.num_processes > 1:
            wait_for_all("that count the score")
            dist.broadcast_object_list(shared)
        scores[rate] = shared[0]
        if process.is_main:
            print_line("rate", f"{rate:g}: {metric} {shared[0]:.2f} on held-out images")
    if rates and not scores:
        raise NotFiniteError(f"all of the learning rates {tuple(rates)} diverged")
    return scores
