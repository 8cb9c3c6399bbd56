"""Intersection over union of classes, as Pascal VOC counts it, in percent.

Everingham et al., IJCV 2015, section 4.3: over the pixels of all images together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.segmented import IGNORED, Mask

Confusion = NDArray[np.int64]
"""(L, L): pixels of the row's class that were taken for the column's."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What a confusion tells."""

    mean: float
    """Over the classes that occur, in masks or in predictions."""
    classes: tuple[float | None, ...]
    """Of each class; None: it does not occur."""
    pixel_accuracy: float
    mean_accuracy: float
    """Over the classes of the masks."""


def confusion(predicted: Mask, truth: Mask, num_classes: int) -> Confusion:
    """Of one image; ignored pixels do not count. ValueError for other sizes or classes."""
    if predicted.shape != truth.shape:
        raise ValueError(
            f"a prediction of {predicted.shape} for a mask of {truth.shape}; expected the size of "
            "the original image"
        )
    counted = truth != IGNORED
    highest = max(predicted[counted].max(initial=0), truth[counted].max(initial=0))
    if highest >= num_classes:
        raise ValueError(f"class {highest} where 0 to {num_classes - 1} are expected")
    pairs = truth[counted].astype(np.int64) * num_classes + predicted[counted]
    counts = np.bincount(pairs, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def overlap(counts: Confusion) -> Overlap:
    """Of a whole split; ValueError if no pixel counts."""
    if not counts.any():
        raise ValueError("no pixel to score; expected masks with classes: check the split")
    right, of_class = np.diag(counts).astype(np.float64), counts.sum(axis=1)
    union = of_class + counts.sum(axis=0) - right
    with np.errstate(invalid="ignore"):
        shares, recalls = 100 * right / union, 100 * right / of_class
    return Overlap(
        mean=float(np.nanmean(shares)),
        classes=tuple(None if np.isnan(share) else float(share) for share in shares),
        pixel_accuracy=float(100 * right.sum() / counts.sum()),
        mean_accuracy=float(np.nanmean(recalls)),
    )
