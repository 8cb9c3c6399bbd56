"""COCO's average precision by pycocotools: Lin et al., ECCV 2014."""

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any, Literal, cast

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor

from transfer.datasets.objects.coco import is_outline
from transfer.datasets.scenes import Scenes
from transfer.detection.results import Detections
from transfer.outcomes import Floats, resampled_precision, resamples

Kind = Literal["bbox", "segm", "keypoints"]

SUMMARY: dict[Kind, tuple[str, ...]] = {
    "bbox": ("AP", "AP50", "AP75", "APs", "APm", "APl"),
    "segm": ("AP", "AP50", "AP75", "APs", "APm", "APl"),
    "keypoints": ("AP", "AP50", "AP75", "APm", "APl"),
}
"""First entries of pycocotools' summary: IoU thresholds, then sizes."""


def coco_ap(
    detections: Sequence[Detections], scenes: Scenes, kinds: Sequence[Kind]
) -> tuple[dict[Kind, dict[str, float]], dict[str, Floats]]:
    """Return average precisions by kind, and resampled ones of the first kind.

    By kind: AP, AP50, AP75, APs, APm, APl, and AP/<class>, in percent. Resampled test sets: AP,
    AP50 and AP75 (B,) in percent. detections: one entry per image of the scenes, in their order.

    The ground truth is read from the annotation file, which also contains areas, masks of crowds
    and boxes without area. Sizes and classes without objects have no entry; without detections, the
    result is 0. Crowds are neither hits nor misses.
    """
    precisions: dict[Kind, dict[str, float]] = {}
    resampled: dict[str, Floats] = {}
    with redirect_stdout(io.StringIO()):
        truth = _truth(scenes)
        for kind in kinds:  # one at a time: the matches of COCO's images need a gigabyte
            evaluation = _evaluate(truth, detections, scenes, kind)
            precisions[kind] = _precisions(evaluation, scenes, kind)
            resampled = resampled or _resampled(evaluation, scenes)
    return precisions, resampled


def _resampled(evaluation: COCOeval, scenes: Scenes) -> dict[str, Floats]:
    """Return AP, AP50 and AP75 (B,) in percent on resampled test sets."""
    params, counts = evaluation.params, resamples(len(scenes))
    index_of_image = {scenes.scene(i).image_id: i for i in range(len(scenes))}
    by_class: list[list[Floats]] = []
    # entries are sorted by class, size and image; the first size includes all
    for k in range(len(params.catIds)):
        start = k * len(params.areaRng) * len(params.imgIds)
        evaluated = [e for e in evaluation.evalImgs[start : start + len(params.imgIds)] if e]
        positives = np.zeros(len(scenes))
        for entry in evaluated:
            positives[index_of_image[entry["image_id"]]] = (~entry["gtIgnore"].astype(bool)).sum()
        if not positives.any():
            continue
        order = np.argsort(-np.concatenate([e["dtScores"] for e in evaluated]), kind="stable")
        images = np.repeat(
            [index_of_image[e["image_id"]] for e in evaluated],
            [len(e["dtScores"]) for e in evaluated],
        )
        is_match = np.concatenate([e["dtMatches"] for e in evaluated], axis=1)[:, order] != 0
        ignored = np.concatenate([e["dtIgnore"] for e in evaluated], axis=1)[:, order].astype(bool)
        by_threshold = [
            resampled_precision(hit, miss, images[order], positives, counts, params.recThrs)
            for hit, miss in zip(is_match & ~ignored, ~is_match & ~ignored, strict=True)
        ]
        by_class.append(by_threshold)
    means, iou_thresholds = np.nanmean(by_class, axis=0), params.iouThrs
    selections = {
        "AP": iou_thresholds > 0,
        "AP50": iou_thresholds == 0.5,
        "AP75": np.isclose(iou_thresholds, 0.75),
    }
    return {name: means[selected].mean(axis=0) for name, selected in selections.items()}


def _truth(scenes: Scenes) -> COCO:
    """Return the valid annotations of these images."""
    if scenes.annotations is None:
        raise ValueError(f"these {len(scenes)} scenes have no annotation file; COCO's AP needs one")
    content = json.loads(scenes.annotations.read_text())
    ids = {scene.image_id for scene in scenes}
    # use the first image of each id, like the reader of the scenes
    images = {image["id"]: image for image in reversed(content["images"]) if image["id"] in ids}
    annotations = []
    for index, entry in enumerate(content["annotations"]):
        if index not in scenes.faulty and entry["image_id"] in ids:
            # pycocotools treats a match with id 0 as no match
            annotation = entry | {"id": index + 1}
            if isinstance(mask := entry.get("segmentation"), list):
                # pycocotools would treat an outline of four numbers as a box, and then fail
                annotation["segmentation"] = list(filter(is_outline, mask))
            annotations.append(annotation)
    truth = COCO()
    truth.dataset = {
        "images": list(images.values()),
        "annotations": annotations,
        "categories": content["categories"],
    }
    truth.createIndex()
    return truth


def _precisions(evaluation: COCOeval, scenes: Scenes, kind: Kind) -> dict[str, float]:
    """Return the average precisions overall, by size and by class, in percent."""
    evaluation.accumulate()
    evaluation.summarize()
    pairs = zip(SUMMARY[kind], evaluation.stats, strict=False)
    ap = {name: 100 * float(value) for name, value in pairs if value >= 0}
    return ap | _per_class(evaluation, scenes)


def _evaluate(
    truth: COCO, detections: Sequence[Detections], scenes: Scenes, kind: Kind
) -> COCOeval:
    """Return the evaluation with the matches of all images."""
    entries = [
        entry
        for i, detected in enumerate(detections)
        for entry in _entries(detected, scenes.scene(i).image_id, scenes.category_ids, kind)
    ]
    # loadRes fails on an empty list, since it reads the first entry
    evaluation = COCOeval(truth, truth.loadRes(entries) if entries else COCO(), kind)
    evaluation.params.catIds = list(scenes.category_ids)
    evaluation.evaluate()
    return evaluation


def _entries(
    detected: Detections, image_id: int | str, category_ids: Sequence[int], kind: Kind
) -> list[dict[str, Any]]:
    """Return the detections of one image in COCO's result format.

    pycocotools determines the size of a detection from its box, if it has one. The size of a mask
    is its area, so its entry has no box. The size of keypoints is the area of the box.
    """
    columns: dict[str, list[Any]] = {
        "score": detected.scores.tolist(),
        "category_id": [category_ids[c] for c in detected.classes.tolist()],
    }
    if kind == "segm":
        size = [detected.height, detected.width]
        masks = cast("list[str]", detected.masks)
        columns["segmentation"] = [{"size": size, "counts": counts} for counts in masks]
    else:
        corners = detected.boxes.clone()
        corners[:, 2:] -= corners[:, :2]
        columns["bbox"] = corners.tolist()
    if kind == "keypoints":
        points = cast("Tensor", detected.keypoints).clone()
        # COCO's files contain pixel indices; pixel centers have an offset of 0.5
        points[:, :, :2] -= 0.5
        columns["keypoints"] = points.flatten(1).tolist()
    rows = zip(*columns.values(), strict=True)
    return [{"image_id": image_id} | dict(zip(columns, row, strict=True)) for row in rows]


def _per_class(evaluation: COCOeval, scenes: Scenes) -> dict[str, float]:
    """Return AP/<class> in percent, for objects of all sizes."""
    names = dict(zip(scenes.category_ids, scenes.class_names, strict=True))
    ap = {}
    for k, category in enumerate(evaluation.params.catIds):
        precision = evaluation.eval["precision"][:, :, k, 0, -1]
        # pycocotools writes -1 for a class without an object
        if (precision > -1).any():
            ap[f"AP/{names[int(category)]}"] = 100 * float(precision[precision > -1].mean())
    return ap
