"""Faults of one COCO annotation: what neither training nor pycocotools could use."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from transfer.datasets.scenes import box_fault, is_number

NUM_KEYPOINTS = 17
Kind = Literal["instances", "person_keypoints"]


def annotation_fault(
    annotation: dict[str, Any], image: dict[str, Any], kind: str, classes: Mapping[int, int]
) -> str:
    """Return why an annotation cannot be used, empty if it can."""
    category = annotation.get("category_id")
    if not isinstance(category, int) or category not in classes:
        return f"category {category} is not among the categories"
    width, height = image["width"], image["height"]
    why = _value_fault(annotation, kind) or box_fault(annotation.get("bbox"), width, height)
    # persons with keypoints have the outlines of the other file, and are left out with them
    if not why and (kind == "instances" or annotation.get("segmentation")):
        why = _mask_fault(annotation, width, height)
    if not why and kind == "person_keypoints":
        why = _keypoint_fault(annotation.get("keypoints"))
    return why


def _value_fault(annotation: dict[str, Any], kind: str) -> str:
    """Return what is wrong with values that pycocotools needs, which runs after the training."""
    crowd, area, labeled = (annotation.get(key) for key in ("iscrowd", "area", "num_keypoints"))
    if crowd not in (0, 1):
        return f"its iscrowd is {crowd}, not 0 or 1"
    if not is_number(area) or area < 0:
        return f"its area is {area}, not a finite number from 0"
    if kind == "person_keypoints" and not isinstance(labeled, int):
        return f"its num_keypoints is {labeled}, not a whole number"
    return ""


def _mask_fault(annotation: dict[str, Any], width: int, height: int) -> str:
    mask = annotation.get("segmentation")
    if isinstance(mask, dict):
        if not annotation["iscrowd"]:
            return "its mask is run lengths, which only crowds have; outlines are needed"
        if mask.get("size") != [height, width]:
            return f"its mask is {mask.get('size')}, the image {[height, width]} (height, width)"
        return _run_length_fault(mask.get("counts"), width * height)
    if not isinstance(mask, list) or not any(map(is_outline, mask)):
        return "it has no outline of three points or more"
    if not all(_is_finite(outline) for outline in mask if is_outline(outline)):
        return "its outline has a value that is not a finite number"
    return ""


def _run_length_fault(counts: object, num_px: int) -> str:
    if isinstance(counts, str):
        return ""
    if not isinstance(counts, list) or not all(isinstance(n, int) and n >= 0 for n in counts):
        return f"the run lengths of its mask are {counts}, neither text nor whole numbers"
    if sum(counts) != num_px:
        return f"the run lengths of its mask end after {sum(counts)} of {num_px} px"
    return ""


def is_outline(outline: object) -> bool:
    """Return whether one part of a mask has three points or more."""
    return isinstance(outline, list) and len(outline) >= 6 and len(outline) % 2 == 0


def _is_finite(values: list[Any]) -> bool:
    try:
        return math.isfinite(sum(values))
    except (TypeError, OverflowError):
        return False


def _keypoint_fault(values: object) -> str:
    if not isinstance(values, list) or len(values) != 3 * NUM_KEYPOINTS:
        given = f"{len(values)} numbers" if isinstance(values, list) else f"{values}"
        return f"its keypoints are {given}, not {3 * NUM_KEYPOINTS} numbers"
    if not _is_finite(values):
        return "its keypoints have a value that is not a finite number"
    if not {0, 1, 2}.issuperset(values[2::3]):
        return f"its keypoints have the marks {sorted(set(values[2::3]))}, not 0, 1 or 2"
    return ""
