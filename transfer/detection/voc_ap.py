"""VOC's average precision of boxes, as detectron2's evaluator computes it for MoCo's tables.

Everingham et al., IJCV 2010, as in the widely used Python port of its Matlab code, at ten IoU
thresholds.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.scenes import Scene, Scenes
from transfer.detection.results import Detections
from transfer.outcomes import Floats, resampled_precision, resamples

THRESHOLDS = np.arange(50, 100, 5) / 100
"""IoU thresholds; AP is the mean over these."""
POINTS = np.arange(0.0, 1.1, 0.1)
"""Recalls of the 11-point metric. As a float the fourth exceeds 0.3, so that 3 of 10 objects do not
reach it. This is kept, since published numbers are computed so."""


Sort = Literal["quicksort", "stable"]
Outcomes = list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]
"""Which detections (k,) of a class are hits, and which are misses, at each IoU threshold."""


def voc_ap(detections: Sequence[Detections], scenes: Scenes) -> dict[str, float]:
    """Return AP, AP50 and AP75 at 11 points and by area (AP_area), and AP and AP50 of each class.

    Percent; AP is the mean over IoU thresholds 0.50, 0.55, ..., 0.95. detections: one entry per
    image of the scenes, in their order. Difficult objects are neither hits nor misses. As in
    detectron2, a class without an object counts as 0 in the mean. ValueError if all are difficult.
    """
    if all(scene.aside.all() for scene in scenes):
        raise ValueError(
            f"all objects on {len(scenes)} images are difficult; expected at least one that is not"
        )
    # rounded scores are often equal, and this sort is not stable; the reference makes the same
    # call, so that both orders are equal on one machine
    counts = np.ones((1, len(scenes)))
    by_class = np.nan_to_num(_precisions(detections, scenes, counts, "quicksort")[..., 0])
    ap = _summaries(by_class.mean(axis=0))
    for name, values in zip(scenes.class_names, by_class[:, 0], strict=True):
        ap[f"AP/{name}"] = values.mean()
        ap[f"AP50/{name}"] = values[0]
    return {name: float(value) for name, value in ap.items()}


def resampled_voc_ap(detections: Sequence[Detections], scenes: Scenes) -> dict[str, Floats]:
    """Return AP, AP50 and AP75 (B,) at 11 points and by area, on resampled test sets.

    Percent; see `voc_ap`. A class that only a resampled set lacks is left out of its mean, as in
    COCO's and the SVMs' metric.
    """
    by_class = _precisions(detections, scenes, resamples(len(scenes)), "stable")
    by_class[np.isnan(by_class).all(axis=(1, 2, 3))] = 0
    return _summaries(np.nanmean(by_class, axis=0))


def _precisions(
    detections: Sequence[Detections], scenes: Scenes, counts: Floats, sort: Sort
) -> Floats:
    """Return the average precision (L, 2, thresholds, B) of classes at 11 points and by area.

    counts (B, n): how often each image occurs. Percent; NaN for a class without an object.
    """
    by_class = [
        [
            [
                resampled_precision(hits, misses, images, positives.astype(float), counts, recalls)
                for hits, misses in outcomes
            ]
            for recalls in (POINTS, None)
        ]
        for positives, images, outcomes in _matches(detections, scenes, sort)
    ]
    return np.asarray(by_class)


def _summaries(means: Floats) -> dict[str, Any]:
    """Return AP, AP50, AP75 and those by area, of means over classes (2, thresholds, ...)."""
    return {
        f"{name}{suffix}": of_summary[chosen].mean(axis=0)
        for of_summary, suffix in zip(means, ("", "_area"), strict=True)
        for name, chosen in (
            ("AP", THRESHOLDS > 0),
            ("AP50", THRESHOLDS == 0.5),
            ("AP75", THRESHOLDS == 0.75),
        )
    }


def _matches(
    detections: Sequence[Detections], scenes: Scenes, sort: Sort
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Outcomes]]:
    """Yield, by class, its objects by image (n,), the images of its k detections and outcomes.

    Difficult objects are left out. The detections are in the order of their scores.
    """
    each = [scenes.scene(i) for i in range(len(scenes))]
    aside = np.concatenate([scene.aside for scene in each])
    labels = np.concatenate([scene.classes for scene in each])
    of_object = np.repeat(np.arange(len(scenes)), [len(scene.classes) for scene in each])
    iou, objects = [], []
    for i, (detected, scene) in enumerate(zip(detections, each, strict=True)):
        best, number = _best_in_image(detected, scene)
        iou.append(best)
        objects.append(np.where(number < 0, -1, number + np.searchsorted(of_object, i)))
    all_iou, all_objects = np.concatenate(iou), np.concatenate(objects)
    images = np.repeat(np.arange(len(detections)), [len(one.scores) for one in detections])
    # rounded as in the text files that the Matlab code reads: scores to three decimals, boxes
    # (below) to one
    scores = np.round(np.concatenate([one.scores.double().numpy() for one in detections]), 3)
    classes = np.concatenate([detected.classes.numpy() for detected in detections])
    for c in range(len(scenes.class_names)):
        own = np.flatnonzero(classes == c)
        own = own[np.argsort(-scores[own], kind=sort)]
        positives = np.bincount(of_object[(labels == c) & ~aside], minlength=len(scenes))
        outcomes = [
            _hits_and_misses(all_iou[own] > threshold, all_objects[own], aside)
            for threshold in THRESHOLDS
        ]
        yield positives, images[own], outcomes


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
