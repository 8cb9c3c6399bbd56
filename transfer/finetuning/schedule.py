"""The settings of a training that the loop reads, recipes, and the learning rate of each step."""

from __future__ import annotations

from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bfloat16", "float16"]


class TrainingSchedule(Protocol):
    """The part of a recipe that does not concern network and images."""

    @property
    def iterations(self) -> int:
        """Optimizer steps."""

    @property
    def milestones(self) -> tuple[int, ...]:
        """Iterations after which the learning rate decays."""

    @property
    def decay(self) -> float:
        """Factor of the learning rate at each milestone."""

    @property
    def learning_rate(self) -> float:
        """Learning rate after the warm-up."""

    @property
    def warmup_iterations(self) -> int:
        """Iterations of the warm-up; 0: none."""

    @property
    def warmup_factor(self) -> float:
        """Share of the learning rate at which the warm-up starts."""

    @property
    def batch_size(self) -> int:
        """Images per optimizer step, over all GPUs and accumulated passes."""

    @property
    def accumulated(self) -> int:
        """Passes per optimizer step whose gradients are accumulated."""

    @property
    def precision(self) -> Precision:
        """Arithmetic of the passes."""

    @property
    def precise_norm_batches(self) -> int:
        """Batches over which norms' statistics are averaged at the end; 0: moving averages stay."""


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set each group's learning rate to its "rate_factor" (1 if absent) times `rate`."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_factor", 1.0)


def learning_rate(course: TrainingSchedule, iteration: int) -> float:
    """Return the learning rate of the step after `iteration` finished ones; milestones decay it.

    The warm-up rises linearly to the value that the milestones give at its end.
    """
    warmup = course.warmup_iterations
    end = course.learning_rate * _decay(course, max(iteration, warmup))
    if iteration >= warmup:
        return end
    start = course.learning_rate * course.warmup_factor
    return start + (end - start) * iteration / warmup


def _decay(course: TrainingSchedule, iteration: int) -> float:
    return float(course.decay ** sum(iteration >= milestone for milestone in course.milestones))


class FineTuningRecipe(TrainingSchedule, Protocol):
    """A frozen dataclass with every setting of a network, its training and its test."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def synchronized_norm(self) -> Literal["SyncBN", "naiveSyncBN"]:
        """Kind of norm layer that shares statistics on several GPUs."""

    def tiny(self) -> Self:
        """Return a recipe for a few steps of a narrow network on small images, to test the code."""

    def at_size(self, px: int, /) -> Self:
        """Return the recipe for images of another size."""


AnyRecipe = TypeVar("AnyRecipe", bound=FineTuningRecipe)
