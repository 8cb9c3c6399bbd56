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
    """Return the scores of a confusion matrix, which counts at least one pixel."""
    ious, correct = class_ious(counts), np.diag(counts).astype(np.float64)
    with np.errstate(invalid="ignore"):
        recalls = 100 * correct / counts.sum(axis=1)
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
    return np.asarray(np.nanmean(class_ious(totals), axis=1))


def class_ious(counts: Confusion | Floats) -> Floats:
    """Return the IoU (..., L) of each class in percent; NaN if it does not occur.

    counts: confusion matrices (..., L, L).
    """
    correct = np.diagonal(counts, axis1=-2, axis2=-1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.asarray(100 * correct / (counts.sum(axis=-1) + counts.sum(axis=-2) - correct))
