"""Predicted masks of a split in files: scores and gallery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from transfer.datasets.segmented import Mask, Segmented, read_mask
from transfer.outcomes import resampled

if TYPE_CHECKING:
    from transfer.galleries.tile import Tile
    from transfer.segmentation.iou import Confusion, Overlap


def prediction_path(folder: Path, split: Segmented, index: int) -> Path:
    """Return the file of an image's predicted mask.

    It is the image's path with .png appended. The complete path is used, since images in different
    folders, or with different suffixes, may have the same name.
    """
    return folder / f"{split.name(index)}.png"


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predicted segmentation masks of a split, stored as PNG files."""

    folder: Path
    split: Segmented
    details: Mapping[str, object] = field(default_factory=dict)
    square_px: int = 0
    """Side of square predictions, scored at this size; 0: original sizes."""

    def truth(self, index: int) -> Mask:
        """Return an image's true classes (H, W) at the prediction's size."""
        mask = self.split.mask(index)
        if not self.square_px:
            return mask
        size = (self.square_px, self.square_px)
        return np.array(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))

    def mask(self, index: int) -> Mask:
        """Return the predicted classes (H, W) of an image."""
        return read_mask(prediction_path(self.folder, self.split, index))

    @cached_property
    def confusions(self) -> Confusion:
        """Per-image confusion matrices (n, L, L) of L classes.

        Rows are the truth, columns the predictions.
        """
        from transfer.segmentation.iou import confusion

        num_classes = len(self.split.class_names)
        indices = range(len(self.split))
        return np.stack([confusion(self.mask(i), self.truth(i), num_classes) for i in indices])

    @cached_property
    def overlap(self) -> Overlap:
        """Return the scores over all pixels of all images."""
        from transfer.segmentation.iou import overlap

        return overlap(self.confusions.sum(axis=0))

    def scores(self) -> dict[str, object]:
        """Return IoU per class (None: does not occur), accuracies and bootstrap mIoU."""
        from transfer.segmentation.iou import resampled_overlap

        names = self.split.class_names
        return {
            "IoU_per_class": dict(zip(names, self.overlap.classes, strict=True)),
            "num_classes_counted": sum(value is not None for value in self.overlap.classes),
            "pixel_accuracy": self.overlap.pixel_accuracy,
            "mean_accuracy": self.overlap.mean_accuracy,
            **resampled({"mIoU": resampled_overlap(self.confusions)}, len(self.confusions)),
        }

    def gallery(self) -> list[Tile]:
        """Return pictures of the predicted masks next to the truth."""
        from transfer.galleries.objects import segments

        return segments(self.split, self.mask)
