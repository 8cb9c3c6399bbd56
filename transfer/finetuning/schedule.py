"""What the loop must know of a training, and the learning rate of each of its steps."""

from typing import Literal, Protocol

import torch

Precision = Literal["float32", "bfloat16", "float16"]


class Course(Protocol):
    """The part of a recipe that is no business of network and images."""

    @property
    def iterations(self) -> int:
        """Optimizer steps."""

    @property
    def milestones(self) -> tuple[int, ...]:
        """Iterations after which the learning rate decays."""

    @property
    def decay(self) -> float:
        """What each milestone multiplies the learning rate by."""

    @property
    def learning_rate(self) -> float:
        """After the warm-up."""

    @property
    def warmup_iterations(self) -> int:
        """0: none."""

    @property
    def warmup_factor(self) -> float:
        """Share of the rate that the warm-up starts at."""

    @property
    def batch_size(self) -> int:
        """Images per optimizer step, all GPUs and accumulated passes."""

    @property
    def accumulated(self) -> int:
        """Passes whose gradients make one step."""

    @property
    def precision(self) -> Precision:
        """Of the passes."""

    @property
    def precise_norm_batches(self) -> int:
        """Batches over which norms' statistics are averaged at the end; 0: they stay moving."""


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give each group its share of a learning rate, "rate_factor", all of it where none is told."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_factor", 1.0)


def learning_rate(course: Course, iteration: int) -> float:
    """Of the step that follows `iteration` finished ones: decayed from each milestone on.

    The warm-up rises linearly to the value that the milestones give at its end.
    """
    warmup = course.warmup_iterations
    end = course.learning_rate * _decay(course, max(iteration, warmup))
    if iteration >= warmup:
        return end
    start = course.learning_rate * course.warmup_factor
    return start + (end - start) * iteration / warmup


def _decay(course: Course, iteration: int) -> float:
    return float(course.decay ** sum(iteration >= milestone for milestone in course.milestones))
