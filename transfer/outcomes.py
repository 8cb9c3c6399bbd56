"""Answers by test image in a record, so that two checkpoints are compared on the same images.

Of a share of right answers, whether each image was right; of a mean over rankings or pixels, the
metric on resampled test sets, the same ones for every checkpoint (Efron, Annals of Statistics
1979). NumPy alone, since tables read it, too.
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
"""Entries of a record's details."""
NUM_RESAMPLES = 200


@dataclass(frozen=True, eq=False)
class PerImage:
    """Right answers for each test image."""

    shares: Floats
    """Share of right answers (n,): 0 or 1, or in between where several are counted."""
    labels: NDArray[np.int64]
    """Classes (n,)."""

    def weights(self, metric: str) -> Floats:
        """Return the weight (n,) of each image in a metric; they add up to 1."""
        if metric != "mean_per_class":
            return np.full(len(self.labels), 1 / len(self.labels))
        counts = np.bincount(self.labels)
        return 1 / (counts[self.labels] * np.count_nonzero(counts))


def per_image(right: NDArray[Any], labels: NDArray[Any], *, of: int = 1) -> dict[str, Any]:
    """Return the entry of a record's details: right answers (n,) from 0 to `of`, labels (n,)."""
    numbers = np.packbits(right.astype(bool)) if of == 1 else right.astype("<u2")
    return {
        PER_IMAGE: {
            "images": len(right),
            "of": of,
            "right": _text(numbers),
            "labels": _text(labels.astype("<u2")),
        }
    }


def read_per_image(details: Mapping[str, Any]) -> PerImage | None:
    """Return what a record's details hold for each image; None if nothing, or not as many."""
    told = details.get(PER_IMAGE)
    if not told:
        return None
    count = told["images"]
    lengths = {"right": -(-count // 8) if told["of"] == 1 else 2 * count, "labels": 2 * count}
    right, labels = (_bytes(told[name], length) for name, length in lengths.items())
    if count < 1 or right is None or labels is None:
        return None
    if told["of"] == 1:
        numbers = np.unpackbits(np.frombuffer(right, np.uint8), count=count)
    else:
        numbers = np.frombuffer(right, "<u2")
    return PerImage(numbers / told["of"], np.frombuffer(labels, "<u2").astype(np.int64))


def resampled(metrics: Mapping[str, Floats], num_images: int) -> dict[str, Any]:
    """Return the entry of a record's details for metrics (NUM_RESAMPLES,) in percent, by name."""
    values = {name: [round(float(v), 4) for v in own] for name, own in metrics.items()}
    return {RESAMPLED: {"images": num_images, "values": values}}


def read_resampled(details: Mapping[str, Any], metric: str) -> Floats | None:
    """Return a metric (B,) on resampled test sets; None if it is not there."""
    values = details.get(RESAMPLED, {}).get("values", {}).get(metric)
    return None if values is None else np.array(values, dtype=np.float64)


def resamples(num_images: int) -> Floats:
    """Return how often each of n images occurs in each resampled test set (NUM_RESAMPLES, n)."""
    # the legacy generator gives the same numbers in all versions of NumPy
    draw = np.random.RandomState(0)
    drawn = (draw.randint(0, num_images, num_images) for _ in range(NUM_RESAMPLES))
    return np.stack([np.bincount(each, minlength=num_images) for each in drawn]).astype(float)


def resampled_precision(
    hits: NDArray[np.bool_],
    misses: NDArray[np.bool_],
    images: NDArray[np.int64],
    positives: Floats,
    counts: Floats,
    recalls: Floats | None,
) -> Floats:
    """Return the average precision (B,) of one class, in percent, on resampled test sets.

    hits, misses, images (k,): of each answer, best first, whether it is right or wrong (or neither)
    and its image; positives (n,): what there is to find in each image; counts (B, n). Precision is
    interpolated; its mean is over `recalls`, or over all by area. Without positives: NaN.
    """
    means = np.full(len(counts), np.nan)
    for b, times in enumerate(counts):
        total = times @ positives
        if not total:
            continue
        found = (times[images] * hits).cumsum()
        # the first may be neither right nor wrong: precision 0
        seen = np.maximum(found + (times[images] * misses).cumsum(), 1)
        recall, best = found / total, np.maximum.accumulate((found / seen)[::-1])[::-1]
        if recalls is None:
            means[b] = (np.diff(recall, prepend=0) * best).sum()
        else:
            # no answer reaches the recalls behind the last one
            means[b] = np.append(best, 0)[np.searchsorted(recall, recalls)].mean()
    return 100 * means


def _text(numbers: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()


def _bytes(text: str, length: int) -> bytes | None:
    """Return the bytes of a text; None if they are not so many: a record may come from others."""
    found = zlib.decompressobj().decompress(base64.b64decode(text), max(1, length + 1))
    return found if len(found) == length else None
