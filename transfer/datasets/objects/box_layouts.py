"""Detect boxes that were stored in an unexpected layout.

A box contradicts its layout in three cases: it overlaps little with its object's outlines, it lies
mostly outside its image, or it is smaller than one pixel. Published files may contain a few such
boxes. A file with many of them was probably written in another layout, such as corners instead of
width and height.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MANY = 0.05
"""Maximum fraction of contradicting boxes in a valid file.

A single such box is always valid.
"""
CONTRADICTION_IOU = 0.5
"""Below this IoU, a box contradicts the outlines or the image."""
AGREEMENT = 0.9
"""Minimum fraction of boxes that another layout explains; minimum IoU."""
XYWH = "left, top, width, height"
XYXY = "left, top, right, bottom"
FRACTIONS = "fractions of the image's width and height"


def _join(x: Floats, y: Floats, width: Floats, height: Floats) -> Floats:
    return np.stack([x, y, x + width, y + height], axis=-1)


TO_CORNERS: Mapping[str, Callable[[Floats, Floats, Floats, Floats], Floats]] = {
    XYXY: lambda a, b, c, d: np.stack([a, b, c, d], axis=-1),
    XYWH: _join,
    "center x, center y, width, height": lambda a, b, c, d: _join(a - c / 2, b - d / 2, c, d),
    "top, left, bottom, right": lambda a, b, c, d: np.stack([b, a, d, c], axis=-1),
    "top, left, height, width": lambda a, b, c, d: _join(b, a, d, c),
}
"""Functions from four numbers (n,) to corners (n, 4), by layout."""


def contradictions(
    numbers: Floats, extents: Floats, image_sizes: Floats, layout: str
) -> dict[int, str]:
    """Return the boxes that contradict a layout, with reasons.

    The result is empty if they are few.
    numbers (n, 4): as stored in the file.
    extents (n, 4): corners of each object's outlines; NaN for objects without outlines.
    image_sizes (n, 2): width and height in px.
    """
    boxes, outlined = _corners(numbers, layout), ~np.isnan(extents[:, 0])
    in_image = np.clip(boxes, 0, np.tile(image_sizes, 2))
    tiny = numbers.max(axis=1, initial=-np.inf) <= 1
    is_far = _iou(boxes, np.where(outlined[:, None], extents, in_image)) < CONTRADICTION_IOU
    wrong = np.flatnonzero(tiny | is_far)
    if len(wrong) <= max(1, MANY * len(numbers)):
        return {}
    if tiny[wrong].mean() >= AGREEMENT:
        likely_layout = FRACTIONS
    else:
        likely_layout = _explain(numbers[wrong], extents[wrong], image_sizes[wrong], layout)
    summary = f"{len(wrong)} of {len(numbers)} boxes are wrong"
    if likely_layout:
        summary += f" and look like {likely_layout}"
    reasons = {}
    for i in wrong.tolist():
        reason = "lies mostly outside its image"
        if tiny[i]:
            reason = "is smaller than a pixel"
        elif outlined[i]:
            reason = "contradicts its outlines"
        box = ", ".join(f"{number:g}" for number in numbers[i])
        reasons[i] = f"box [{box}] {reason}: {summary}; expected {layout} in px"
    return reasons


def _explain(numbers: Floats, extents: Floats, image_sizes: Floats, layout: str) -> str:
    """Return the layout that explains most boxes; empty if none explains enough."""
    fractions = {}
    for name in TO_CORNERS:
        boxes = _corners(numbers, name)
        positive = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        inside = (boxes[:, :2] >= -1).all(axis=1) & (boxes[:, 2:] <= image_sizes + 1).all(axis=1)
        same = _iou(boxes, extents) >= AGREEMENT
        fractions[name] = (positive & np.where(np.isnan(extents[:, 0]), inside, same)).mean()
    del fractions[layout]
    best = max(fractions, key=lambda name: fractions[name])
    return best if fractions[best] >= AGREEMENT else ""


def _corners(numbers: Floats, layout: str) -> Floats:
    return TO_CORNERS[layout](*numbers.T)


def _iou(boxes: Floats, boxes2: Floats) -> Floats:
    """Return the IoU (n,) of pairs of boxes (n, 4).

    It is 0 for empty boxes and NaN for NaN.
    """
    top_left = np.maximum(boxes[:, :2], boxes2[:, :2])
    bottom_right = np.minimum(boxes[:, 2:], boxes2[:, 2:])
    intersection = np.maximum(bottom_right - top_left, 0).prod(axis=1)
    area1, area2 = (np.maximum(b[:, 2:] - b[:, :2], 0).prod(axis=1) for b in (boxes, boxes2))
    iou: Floats = intersection / np.maximum(area1 + area2 - intersection, np.finfo(np.float64).tiny)
    return iou
