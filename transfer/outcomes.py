"""Predictions per test image in a record, for comparing checkpoints.

For accuracies, the record stores which images were classified correctly. For means over rankings or
pixels, it stores the metric on resampled test sets, which are equal for all checkpoints (Efron,
Annals of Statistics 1979). This module uses only NumPy, since tables read it, too.
"""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PER_IMAGE, RESAMPLED = "per_image", "resampled"
"""Keys in a record's details."""
NUM_RESAMPLES = 200


@dataclass(frozen=True, eq=False)
class PerImage:
    """Correct predictions for each test image."""

    fractions: Floats
    """Fraction (n,) of correct predictions; 0 or 1 for a single prediction."""
    labels: NDArray[np.int64]
    """Classes (n,)."""

    def weights(self, metric: str) -> Floats:
        """Return each image's weight (n,) in a metric; they sum to 1."""
        if metric != "mean_per_class":
            return np.full(len(self.labels), 1 / len(self.labels))
        counts = np.bincount(self.labels)
        return 1 / (counts[self.labels] * np.count_nonzero(counts))


def per_image(
    right: NDArray[Any], labels: NDArray[Any], *, num_predictions: int = 1
) -> dict[str, Any]:
    """Return the details entry for predictions per image.

    right (n,): number of correct predictions from 0 to `of`. labels (n,).
    """
    numbers = np.packbits(right.astype(bool)) if num_predictions == 1 else right.astype("<u2")
    return {
        PER_IMAGE: {
            "images": len(right),
            "of": num_predictions,
            "right": _text(numbers),
            "labels": _text(labels.astype("<u2")),
        }
    }


def read_per_image(details: Mapping[str, Any]) -> PerImage | None:
    """Return the predictions per image in a record's details.

    None if they are missing or damaged.
    """
    entry = details.get(PER_IMAGE)
    if not entry:
        return None
    try:
        right, labels = (zlib.decompress(base64.b64decode(entry[k])) for k in ("right", "labels"))
    except zlib.error:
        return None
    count = entry["images"]
    if entry["of"] == 1:
        values = np.unpackbits(np.frombuffer(right, np.uint8))[:count]
    else:
        values = np.frombuffer(right, "<u2")
    if not 0 < count == len(values) == len(labels) // 2:
        return None
    return PerImage(values / entry["of"], np.frombuffer(labels, "<u2").astype(np.int64))


def resampled(metrics: Mapping[str, Floats], num_images: int) -> dict[str, Any]:
    """Return the details entry for resampled metrics.

    metrics: (NUM_RESAMPLES,) in percent, by name.
    """
    values = {name: [round(float(v), 4) for v in array] for name, array in metrics.items()}
    return {RESAMPLED: {"images": num_images, "values": values}}


def read_resampled(details: Mapping[str, Any], metric: str) -> Floats | None:
    """Return a metric (B,) on resampled test sets, or None."""
    values = details.get(RESAMPLED, {}).get("values", {}).get(metric)
    return None if values is None else np.array(values, dtype=np.float64)


def resamples(num_images: int) -> Floats:
    """Return how often each image occurs in each resampled test set.

    Shape (NUM_RESAMPLES, n).
    """
    # the legacy generator gives the same numbers in all versions of NumPy
    generator = np.random.RandomState(0)
    samples = (generator.randint(0, num_images, num_images) for _ in range(NUM_RESAMPLES))
    return np.stack([np.bincount(s, minlength=num_images) for s in samples]).astype(float)


def resampled_precision(
    hits: NDArray[np.bool_],
    misses: NDArray[np.bool_],
    images: NDArray[np.int64],
    positives: Floats,
    counts: Floats,
    recalls: Floats | None,
) -> Floats:
    """Return the average precision (B,) of one class on resampled test sets.

    The result is in percent; NaN without positives. hits, misses, images: (k,) for k predictions
    with the highest score first. They say whether a prediction is a true positive, whether it is a
    false positive (both may be False), and its image. positives (n,): number of objects in each
    image. counts (B, n): copies of each image. Precision is interpolated. It is averaged over
    `recalls`, or over the area under the curve if None.
    """
    means = np.full(len(counts), np.nan)
    for b, times in enumerate(counts):
        total = times @ positives
        if not total:
            continue
        num_hits = (times[images] * hits).cumsum()
        # if the first predictions are neither hits nor misses, their precision is 0
        num_counted = np.maximum(num_hits + (times[images] * misses).cumsum(), 1)
        recall = num_hits / total
        precision = np.maximum.accumulate((num_hits / num_counted)[::-1])[::-1]
        if recalls is None:
            means[b] = (np.diff(recall, prepend=0) * precision).sum()
        else:
            # precision is 0 at recalls that no prediction reaches
            means[b] = np.append(precision, 0)[np.searchsorted(recall, recalls)].mean()
    return 100 * means


def _text(numbers: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()
