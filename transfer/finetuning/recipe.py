"""What the room needs of a recipe that trains a whole network: detectors and segmentation."""

from dataclasses import Field
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

from transfer.finetuning.schedule import Course


class FineTuningRecipe(Course, Protocol):
    """A frozen dataclass that holds every number of a network, its training and its test."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def synchronized_norm(self) -> Literal["SyncBN", "naiveSyncBN"]:
        """Return how norm layers share statistics on several GPUs."""

    def tiny(self) -> Self:
        """Return a few steps of a narrow network on small images: shows that everything runs."""

    def at_size(self, px: int, /) -> Self:
        """Return the recipe for images of another size."""


AnyRecipe = TypeVar("AnyRecipe", bound=FineTuningRecipe)
