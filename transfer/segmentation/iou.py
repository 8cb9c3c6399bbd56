"""Intersection over union (IoU) of classes in percent, as in Pascal VOC.

Everingham et al., IJCV 2015, section 4.3: counts are summed over the pixels of all images.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.segmented import IGNORED, Mask
from transfer.outcomes import Floats, resamples

Confusion = NDArray[np.int64]
"""Pixel counts (L, L), by true (row) and predicted class (column)."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Scores of a confusion matrix, in percent."""

    mean: float
    """Mean IoU over the classes that occur in masks or predictions."""
    classes: tuple[float | None, ...]
    """IoU of each class; None where the class does not occur."""
    pixel_accuracy: float
    """Percentage of correctly classified pixels."""
    mean_accuracy: float
    """Mean recall over the classes of the masks."""


def confusion(predicted: Mask, truth: Mask, num_classes: int) -> Confusion:
    """Return the confusion matrix of one image, without ignored pixels."""
    counted = truth != IGNORED
    pairs = truth[counted].astype(np.int64) * num_classes + predicted[counted]
    counts = np.bincount(pairs, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def overlap(counts: Confusion) -> Overlap:
    """Return the scores of a confusion matrix; ValueError if it is empty."""
    if not counts.any():
        raise ValueError(
            f"the masks contain none of the {len(counts)} classes, so no pixel can be scored: "
            f"check the split"
        )
    correct, per_class = np.diag(counts).astype(np.float64), counts.sum(axis=1)
    union = per_class + counts.sum(axis=0) - correct
    with np.errstate(invalid="ignore"):
        ious, recalls = 100 * correct / union, 100 * correct / per_class
    return Overlap(
        mean=float(np.nanmean(ious)),
        classes=tuple(None if np.isnan(iou) else float(iou) for iou in ious),
        pixel_accuracy=float(100 * correct.sum() / counts.sum()),
        mean_accuracy=float(np.nanmean(recalls)),
    )


def resampled_overlap(counts: Confusion) -> Floats:
    """Return the mean IoU (B,) in percent on bootstrap resamples.

    counts (n, L, L): confusion matrix of each image.
    """
    totals = np.tensordot(resamples(len(counts)), counts, 1)
    correct = np.diagonal(totals, axis1=1, axis2=2)
    union = totals.sum(axis=1) + totals.sum(axis=2) - correct
    ious = np.divide(100 * correct, union, out=np.full(correct.shape, np.nan), where=union > 0)
    return np.asarray(np.nanmean(ious, axis=1))
