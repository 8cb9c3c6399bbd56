"""Base class of segmentation tasks: images, masks and scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pretrain.running.processes import this_process
from transfer.datasets.catalog import open_segmented
from transfer.datasets.folders import Folders
from transfer.datasets.segmented import IGNORED, Segmented
from transfer.finetuning.schedule import AnyRecipe
from transfer.segmentation.masks import Predicted
from transfer.tasks.recipe_training import Portion, RecipeTraining

if TYPE_CHECKING:
    from transfer.galleries.tile import Tile


@dataclass(frozen=True, kw_only=True)
class PixelTraining(RecipeTraining[AnyRecipe]):
    """Base class of tasks that train on masks and test full-size images."""

    primary_metric: ClassVar[str] = "mIoU"

    dataset: str = "voc12_seg"

    def open(self, data: Path, split: str) -> Segmented:
        """Open a split of the dataset."""
        return open_segmented(self.dataset, data, split)

    def untrainable_reason(self, images: Segmented) -> str:
        """Return why the masks cannot be trained on; empty if usable."""
        return no_class_message(images)

    def untestable_reason(self, images: Segmented) -> str:
        """Return why the masks cannot be tested on; empty if usable."""
        return no_class_message(images)

    def test(self, network: Any, portion: Portion, folder: Path, folders: Folders) -> Predicted:
        """Write the predicted masks of the test images to files; return them."""
        from transfer.segmentation.train import predict

        masks = folder / "predictions"
        predict(network, portion.test, masks, this_process())
        stored = masks.relative_to(folders.work).as_posix()
        details = {"masks": list(portion.train.notes), "predictions": stored}
        return Predicted(masks, portion.test, details)

    def metrics(self, predicted: Predicted) -> dict[str, float]:
        """Return mIoU in percent."""
        return {"mIoU": predicted.overlap.mean}

    def details(self, predicted: Predicted) -> dict[str, object]:
        """Return details of the training and all scores of the masks."""
        return {**predicted.details, **predicted.scores()}

    def gallery(self, predicted: Predicted, folders: Folders) -> list[Tile]:
        """Return pictures of predicted masks next to the ground truth."""
        return predicted.gallery()


def no_class_message(images: Segmented) -> str:
    """Return an error message if no pixel has a class, or ''."""
    # usually the first mask already has a class
    if any((images.mask(i) != IGNORED).any() for i in range(len(images))):
        return ""
    return f"no pixel with a class: the masks of {len(images):,} images hold {IGNORED} (ignored)"
