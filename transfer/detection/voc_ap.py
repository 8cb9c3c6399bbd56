"""VOC's average precision of boxes, as detectron2's evaluator computes it for MoCo's tables.

Everingham et al., IJCV 2010, as in the widely used Python port of its Matlab code, at ten IoU
thresholds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.scene_arrays import Scene
from transfer.datasets.scenes import Scenes
from transfer.detection.results import Detections, check_same_images
from transfer.outcomes import Floats, resampled_precision, resamples

THRESHOLDS = np.arange(50, 100, 5) / 100
"""IoU thresholds; AP is the mean over these."""
POINTS = np.arange(0.0, 1.1, 0.1)
"""Recalls of the 11-point metric. As a float the fourth exceeds 0.3, so that 3 of 10 objects do not
reach it. This is kept, since published numbers are computed so."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Overlaps:
    """All K detections of a split, each with the object of its class that it overlaps most."""

    scores: Floats
    """Confidences (K,), rounded to three decimals."""
    classes: NDArray[np.int64]
    """Classes (K,), from 0."""
    iou: Floats
    """IoU (K,) with that object; -inf where the image has no object of the class."""
    objects: NDArray[np.int64]
    """Index (K,) of that object among all objects of the split; -1 where there is none."""


def voc_ap(detections: Sequence[Detections], scenes: Scenes) -> dict[str, float]:
    """Return AP, AP50 and AP75 at 11 points and by area (AP_area), and AP and AP50 of each class.

    Percent; AP is the mean over IoU thresholds 0.50, 0.55, ..., 0.95. detections: one entry per
    image of the scenes, in their order. Difficult objects are neither hits nor misses. As in
    detectron2, a class without an object counts as 0 in the mean. ValueError if all are difficult.
    """
    check_same_images(detections, scenes)
    aside, labels = _objects(scenes)
    if aside.all():
        raise ValueError(
            f"{len(aside)} objects on {len(scenes)} images, all of them difficult; "
            "expected at least one that is not"
        )
    overlaps = _overlaps(detections, scenes)
    by_class = np.stack(
        [
            _class_ap(overlaps, c, aside, num_objects=int((~aside[labels == c]).sum()))
            for c in range(len(scenes.class_names))
        ]
    )
    half = int(np.flatnonzero(THRESHOLDS == 0.5)[0])
    three_quarters = int(np.flatnonzero(THRESHOLDS == 0.75)[0])
    ap = {}
    for metric, suffix in enumerate(("", "_area")):
        means = by_class[:, metric].mean(axis=0)
        ap[f"AP{suffix}"] = float(means.mean())
        ap[f"AP50{suffix}"] = float(means[half])
        ap[f"AP75{suffix}"] = float(means[three_quarters])
    for name, values in zip(scenes.class_names, by_class[:, 0], strict=True):
        ap[f"AP/{name}"] = float(values.mean())
        ap[f"AP50/{name}"] = float(values[half])
    return ap


def resampled_voc_ap(detections: Sequence[Detections], scenes: Scenes) -> dict[str, Floats]:
    """Return AP, AP50 and AP75 (B,) at 11 points and by area, on resampled test sets.

    Percent; see `voc_ap`.
    """
    aside, labels = _objects(scenes)
    overlaps, counts = _overlaps(detections, scenes), resamples(len(scenes))
    images = np.repeat(np.arange(len(detections)), [len(one.scores) for one in detections])
    of_object = np.repeat(np.arange(len(scenes)), [len(s.classes) for s in _each(scenes)])
    by_class = np.zeros((len(scenes.class_names), len(THRESHOLDS), 2, len(counts)))
    for c, of_class in enumerate(by_class):
        own = np.flatnonzero(overlaps.classes == c)
        own = own[np.argsort(-overlaps.scores[own], kind="stable")]
        positives = np.bincount(of_object[(labels == c) & ~aside], minlength=len(scenes))
        for t, threshold in enumerate(THRESHOLDS):
            reached = overlaps.iou[own] > threshold
            hits, misses = _hits_and_misses(reached, overlaps.objects[own], aside)
            for summary, points in enumerate((POINTS, None)):
                of_class[t, summary] = resampled_precision(
                    hits, misses, images[own], positives.astype(float), counts, points
                )
    means = np.nan_to_num(by_class).mean(axis=0)
    return {
        f"{name}{suffix}": means[chosen, summary].mean(axis=0)
        for summary, suffix in enumerate(("", "_area"))
        for name, chosen in (
            ("AP", THRESHOLDS > 0),
            ("AP50", THRESHOLDS == 0.5),
            ("AP75", THRESHOLDS == 0.75),
        )
    }


def _each(scenes: Scenes) -> list[Scene]:
    return [scenes.scene(i) for i in range(len(scenes))]


def _objects(scenes: Scenes) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return whether each object of the split, in order, is difficult, and its class."""
    each = _each(scenes)
    return np.concatenate([s.aside for s in each]), np.concatenate([s.classes for s in each])


def _overlaps(detections: Sequence[Detections], scenes: Scenes) -> Overlaps:
    iou, objects = [], []
    num_before = 0
    for i, detected in enumerate(detections):
        scene = scenes.scene(i)
        best, number = _best_in_image(detected, scene)
        iou.append(best)
        objects.append(np.where(number < 0, -1, number + num_before))
        num_before += len(scene.classes)
    scores = np.concatenate([detected.scores.double().numpy() for detected in detections])
    return Overlaps(
        # rounded as in the text files that the Matlab code reads: scores to three decimals, boxes
        # (below) to one
        scores=np.round(scores, 3),
        classes=np.concatenate([detected.classes.numpy() for detected in detections]),
        iou=np.concatenate(iou),
        objects=np.concatenate(objects),
    )


def _best_in_image(detected: Detections, scene: Scene) -> tuple[Floats, NDArray[np.int64]]:
    """Return per detection (k,) the highest IoU with an object of its class, and its index."""
    best = np.full(len(detected.classes), -np.inf)
    number = np.full(len(detected.classes), -1)
    classes = detected.classes.numpy()
    # the metric counts pixels from 1 and includes the last
    boxes = np.round((detected.boxes + detected.boxes.new_tensor([1, 1, 0, 0])).double().numpy(), 1)
    truth = scene.boxes + np.array([1, 1, 0, 0])
    for c in np.unique(scene.classes):
        own, objects = np.flatnonzero(classes == c), np.flatnonzero(scene.classes == c)
        iou = pixel_iou(boxes[own], truth[objects])
        best[own] = iou.max(axis=1)
        number[own] = objects[iou.argmax(axis=1)]
    return best, number


def pixel_iou(boxes: Floats, others: Floats) -> Floats:
    """Return the IoU (k, m) of boxes (k, 4) and (m, 4) that include their last row and column."""
    first = np.maximum(boxes[:, None, :2], others[:, :2])
    last = np.minimum(boxes[:, None, 2:], others[:, 2:])
    common = np.maximum(last - first + 1, 0).prod(axis=2)
    area, other_area = ((b[:, 2:] - b[:, :2] + 1).prod(axis=1) for b in (boxes, others))
    iou: Floats = common / (area[:, None] + other_area - common)
    return iou


def _class_ap(
    overlaps: Overlaps, label: int, aside: NDArray[np.bool_], *, num_objects: int
) -> Floats:
    """Return AP (2, T) in percent: at 11 points and by area, at each of T IoU thresholds."""
    own = np.flatnonzero(overlaps.classes == label)
    if not num_objects or not len(own):
        return np.zeros((2, len(THRESHOLDS)))
    # rounded scores are often equal, and this sort is not stable; the reference makes the same
    # call, so that both orders are equal on one machine
    own = own[np.argsort(-overlaps.scores[own])]
    iou, objects = overlaps.iou[own], overlaps.objects[own]
    ap = np.empty((2, len(THRESHOLDS)))
    for t, threshold in enumerate(THRESHOLDS):
        hits, misses = _hits_and_misses(iou > threshold, objects, aside)
        recall = hits.cumsum() / num_objects
        # the first may be on difficult objects, neither hits nor misses: precision 0, not 0 / 0
        precision = hits.cumsum() / np.maximum((hits | misses).cumsum(), 1)
        ap[:, t] = _eleven_points(recall, precision), _area(recall, precision)
    return 100 * ap


def _hits_and_misses(
    reached: NDArray[np.bool_], objects: NDArray[np.int64], aside: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which detections (k,), best first, are hits and which are misses.

    The first detection on an object is a hit, the others on it are misses: they are not matched to
    their second best object. Those on difficult objects are neither. reached: whether a detection
    overlaps its best object enough.
    """
    counted = np.flatnonzero(reached & ~aside[objects])
    _, first = np.unique(objects[counted], return_index=True)
    hits = np.zeros(len(objects), dtype=np.bool_)
    hits[counted[first]] = True
    misses = ~reached
    misses[counted] = True
    return hits, misses & ~hits


def _eleven_points(recall: Floats, precision: Floats) -> float:
    """Return the mean over 11 recalls of the best precision at that recall or above.

    The precision is 0 where no detection reaches the recall.
    """
    best = np.append(_maximum_from_each_on(precision), 0)
    return float(best[np.searchsorted(recall, POINTS)].mean())


def _area(recall: Floats, precision: Floats) -> float:
    """Return the area under the curve of the best precision at each recall or above."""
    return float((np.diff(recall, prepend=0) * _maximum_from_each_on(precision)).sum())


def _maximum_from_each_on(precision: Floats) -> Floats:
    best: Floats = np.maximum.accumulate(precision[::-1])[::-1]
    return best
