"""Settings of the training loop, recipes, learning rate schedule and search."""

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
    """Settings of the training loop, independent of network and images."""

    iterations: int
    """Optimizer steps in total."""
    milestones: tuple[int, ...]
    """Iterations after which the learning rate decays."""
    decay: float
    """Factor of the learning rate at each milestone."""
    decay_shape: Literal["steps", "linear", "cosine"] = "steps"
    """Shape of the learning rate: drops at milestones, or decay to 0."""
    learning_rate: float
    """Learning rate after the warm-up."""
    warmup_iterations: int
    """Iterations over which the learning rate rises linearly; 0: none."""
    warmup_factor: float
    """Learning rate at the start of the warm-up, relative to `learning_rate`."""
    batch_size: int
    """Images per optimizer step, over all GPUs and accumulated micro-batches."""
    accumulated: int
    """Micro-batches per step; each has its own norm statistics."""
    precision: Precision
    """Precision of convolutions and matrix products in training (autocast)."""
    precise_norm_batches: int
    """Batches for the final norm statistics; 0: keep the moving averages."""


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set each group's learning rate: `value` times its "rate_factor" (default 1)."""
    for group in optimizer.param_groups:
        group["lr"] = value * group.get("rate_factor", 1.0)


def learning_rate(schedule: TrainingSchedule, iteration: int) -> float:
    """Return the learning rate of the step after `iteration` finished ones.

    With "steps", the warm-up rises linearly to the value after its last iteration. Otherwise, the
    warm-up factor multiplies the decaying learning rate, as in mmsegmentation and DINOv3.
    """
    warmup = schedule.warmup_iterations
    if schedule.decay_shape != "steps":
        progress = iteration / schedule.iterations
        decay = (
            1 - progress
            if schedule.decay_shape == "linear"
            else (1 + math.cos(math.pi * progress)) / 2
        )
        warmup_progress = min(1.0, iteration / warmup) if warmup else 1.0
        factor = schedule.warmup_factor + (1 - schedule.warmup_factor) * warmup_progress
        return schedule.learning_rate * decay * factor
    drops = sum(max(iteration, warmup) >= milestone for milestone in schedule.milestones)
    end = schedule.learning_rate * float(schedule.decay**drops)
    if iteration >= warmup:
        return end
    start = schedule.learning_rate * schedule.warmup_factor
    return start + (end - start) * iteration / warmup


class FineTuningRecipe(TrainingSchedule, ABC):
    """Base class of recipes: all settings of network, training and test."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    decay = 0.1
    """Default of detectron2 and mmsegmentation."""
    sgd_momentum: float
    """Momentum of the optimizer."""
    synchronized_norm: Literal["SyncBN", "naiveSyncBN"]
    """Synchronized norm layer on several GPUs; otherwise, BN is used."""

    @abstractmethod
    def tiny(self) -> Self:
        """Return a smoke test: a few steps on small images."""

    @abstractmethod
    def at_size(self, px: int, /) -> Self:
        """Return the recipe for images of another size."""


AnyRecipe = TypeVar("AnyRecipe", bound=FineTuningRecipe)


def search_learning_rates(
    candidates: Sequence[float], score: Callable[[float], float], metric: str
) -> dict[float, float]:
    """Return the score of each learning rate that does not diverge.

    Scores are equal on all processes. score: trains with a learning rate and returns the metric in
    percent; the first process's value is used. Raises NotFiniteError if all diverge.
    """
    import torch.distributed as dist

    process = this_process()
    scores: dict[float, float] = {}
    for candidate in candidates:
        try:
            shared = [score(candidate)]
        except NotFiniteError as error:
            if process.num_processes > 1 and error.__cause__ is not None:
                raise  # only this process failed within a step, and the others wait for it
            continue
        if process.num_processes > 1:
            wait_for_all("that count the score")
            dist.broadcast_object_list(shared)
        scores[candidate] = shared[0]
        if process.is_main:
            print_line("rate", f"{candidate:g}: {metric} {shared[0]:.2f} on held-out images")
    if candidates and not scores:
        raise NotFiniteError(f"all of the learning rates {tuple(candidates)} diverged")
    return scores
