"""The interface of recipes that train a whole network: detectors and segmentation."""

from dataclasses import Field
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from transfer.finetuning.schedule import TrainingSchedule


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
