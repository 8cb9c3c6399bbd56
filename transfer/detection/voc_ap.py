"""VOC's average precision of boxes, as in detectron2's evaluator.

Everingham et al., IJCV 2010, as in the common Python port of its Matlab code, at ten IoU
thresholds. MoCo's tables use it.
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
"""Recalls of the 11-point metric.

The fourth float is larger than 0.3, so 3 of 10 objects do not reach it. Published numbers were
computed like this."""


Sort = Literal["quicksort", "stable"]
Outcomes = list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]
"""Hits and misses (k,) among a class's detections, by IoU threshold."""


def voc_ap(detections: Sequence[Detections], scenes: Scenes) -> dict[str, float]:
    """Return AP, AP50 and AP75, and AP and AP50 by class.

    All are in percent, at 11 points and by area; AP is the mean over IoU thresholds 0.50, 0.55,
    ..., 0.95. The area metrics are called AP_area and so on. detections: one entry per image of the
    scenes, in their order. Difficult objects are neither hits nor misses. As in detectron2, a class
    without objects counts as 0 in the mean.
    """
    # rounded scores are often equal, and this sort is not stable; the reference calls the same
    # function, so both orders are equal on one machine
    counts = np.ones((1, len(scenes)))
    by_class = np.nan_to_num(_precisions(detections, scenes, counts, "quicksort")[..., 0])
    ap = _summaries(by_class.mean(axis=0))
    for name, values in zip(scenes.class_names, by_class[:, 0], strict=True):
        ap[f"AP/{name}"] = values.mean()
        ap[f"AP50/{name}"] = values[0]
    return {name: float(value) for name, value in ap.items()}


def resampled_voc_ap(detections: Sequence[Detections], scenes: Scenes) -> dict[str, Floats]:
    """Return AP, AP50 and AP75 (B,) on resampled test sets.

    In percent, at 11 points and by area; see `voc_ap`. A class that is missing only in a resampled
    set is left out of its mean, as in COCO's metric and the SVM's.
    """
    by_class = _precisions(detections, scenes, resamples(len(scenes)), "stable")
    by_class[np.isnan(by_class).all(axis=(1, 2, 3))] = 0
    return _summaries(np.nanmean(by_class, axis=0))


def _precisions(
    detections: Sequence[Detections], scenes: Scenes, counts: Floats, sort: Sort
) -> Floats:
    """Return average precisions (L, 2, thresholds, B).

    The second axis is at 11 points and by area. counts (B, n): how often each image occurs. In
    percent; NaN for a class without objects.
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
    """Return AP, AP50 and AP75, at 11 points and by area.

    means (2, thresholds, ...): means over classes.
    """
    return {
        f"{name}{suffix}": of_metric[is_chosen].mean(axis=0)
        for of_metric, suffix in zip(means, ("", "_area"), strict=True)
        for name, is_chosen in (
            ("AP", THRESHOLDS > 0),
            ("AP50", THRESHOLDS == 0.5),
            ("AP75", THRESHOLDS == 0.75),
        )
    }


def _matches(
    detections: Sequence[Detections], scenes: Scenes, sort: Sort
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Outcomes]]:
    """Yield object counts (n,), image indices and outcomes for each class.

    Difficult objects are not counted. The k detections are sorted by score.
    """
    all_scenes = [scenes.scene(i) for i in range(len(scenes))]
    difficult = np.concatenate([scene.aside for scene in all_scenes])
    labels = np.concatenate([scene.classes for scene in all_scenes])
    image_of_object = np.repeat(
        np.arange(len(scenes)), [len(scene.classes) for scene in all_scenes]
    )
    iou, objects = [], []
    for i, (detected, scene) in enumerate(zip(detections, all_scenes, strict=True)):
        best, number = _best_in_image(detected, scene)
        iou.append(best)
        objects.append(np.where(number < 0, -1, number + np.searchsorted(image_of_object, i)))
    all_iou, all_objects = np.concatenate(iou), np.concatenate(objects)
    images = np.repeat(
        np.arange(len(detections)), [len(detected.scores) for detected in detections]
    )
    # rounded as in the text files for the Matlab code: scores to three decimals, boxes (below)
    # to one
    scores = np.round(
        np.concatenate([detected.scores.double().numpy() for detected in detections]), 3
    )
    classes = np.concatenate([detected.classes.numpy() for detected in detections])
    for c in range(len(scenes.class_names)):
        indices = np.flatnonzero(classes == c)
        indices = indices[np.argsort(-scores[indices], kind=sort)]
        positives = np.bincount(image_of_object[(labels == c) & ~difficult], minlength=len(scenes))
        outcomes = [
            _hits_and_misses(all_iou[indices] > threshold, all_objects[indices], difficult)
            for threshold in THRESHOLDS
        ]
        yield positives, images[indices], outcomes


def _best_in_image(detected: Detections, scene: Scene) -> tuple[Floats, NDArray[np.int64]]:
    """Return each detection's best IoU and object of its class.

    Both (k,); the object is an index, -1 without objects.
    """
    best = np.full(len(detected.classes), -np.inf)
    number = np.full(len(detected.classes), -1)
    classes = detected.classes.numpy()
    # the metric counts pixels from 1 and includes the last pixel
    boxes = np.round((detected.boxes + detected.boxes.new_tensor([1, 1, 0, 0])).double().numpy(), 1)
    truth = scene.boxes + np.array([1, 1, 0, 0])
    for c in np.unique(scene.classes):
        of_class, objects = np.flatnonzero(classes == c), np.flatnonzero(scene.classes == c)
        iou = pixel_iou(boxes[of_class], truth[objects])
        best[of_class] = iou.max(axis=1)
        number[of_class] = objects[iou.argmax(axis=1)]
    return best, number


def pixel_iou(boxes: Floats, other_boxes: Floats) -> Floats:
    """Return the IoU (k, m) of boxes (k, 4) and (m, 4).

    Boxes include their last row and column.
    """
    top_left = np.maximum(boxes[:, None, :2], other_boxes[:, :2])
    bottom_right = np.minimum(boxes[:, None, 2:], other_boxes[:, 2:])
    intersection = np.maximum(bottom_right - top_left + 1, 0).prod(axis=2)
    area, other_area = ((b[:, 2:] - b[:, :2] + 1).prod(axis=1) for b in (boxes, other_boxes))
    iou: Floats = intersection / (area[:, None] + other_area - intersection)
    return iou


def _hits_and_misses(
    reached: NDArray[np.bool_], objects: NDArray[np.int64], difficult: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which detections (k,), best first, are hits and which are misses.

    The first detection of an object is a hit, and the next ones are misses: they are not matched to
    another object. Detections of difficult objects are neither. reached: whether the IoU with the
    best object is above the threshold.
    """
    counted = np.flatnonzero(reached & ~difficult[objects])
    _, first = np.unique(objects[counted], return_index=True)
    hits = np.zeros(len(objects), dtype=np.bool_)
    hits[counted[first]] = True
    misses = ~reached
    misses[counted] = True
    return hits, misses & ~hits
