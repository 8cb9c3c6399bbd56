"""Intersection over union (IoU) of classes as in Pascal VOC, in percent.

Everingham et al., IJCV 2015, section 4.3: the pixels of all images are counted together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.segmented import IGNORED, Mask
from transfer.outcomes import Floats, resamples

Confusion = NDArray[np.int64]
"""Numbers of pixels (L, L) by true class (row) and predicted class (column)."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Scores of a confusion matrix, in percent."""

    mean: float
    """Mean IoU over the classes that occur in masks or in predictions."""
    classes: tuple[float | None, ...]
    """IoU of each class; None where the class does not occur."""
    pixel_accuracy: float
    """Share of pixels with the right class."""
    mean_accuracy: float
    """Mean recall over the classes of the masks."""


def confusion(predicted: Mask, truth: Mask, num_classes: int) -> Confusion:
    """Return the confusion matrix of one image, without ignored pixels."""
    counted = truth != IGNORED
    pairs = truth[counted].astype(np.int64) * num_classes + predicted[counted]
    counts = np.bincount(pairs, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def overlap(counts: Confusion) -> Overlap:
    """Return the scores of a split's confusion matrix; ValueError if it is empty."""
    if not counts.any():
        raise ValueError(
            f"no pixel to score among {len(counts)} classes; expected masks with classes: check "
            f"the split"
        )
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


def resampled_overlap(counts: Confusion) -> Floats:
    """Return the mean IoU (B,) in percent on resampled test sets; counts (n, L, L) by image."""
    each = np.tensordot(resamples(len(counts)), counts, 1)
    right = np.diagonal(each, axis1=1, axis2=2)
    union = each.sum(axis=1) + each.sum(axis=2) - right
    shares = np.divide(100 * right, union, out=np.full(right.shape, np.nan), where=union > 0)
    return np.asarray(np.nanmean(shares, axis=1))
