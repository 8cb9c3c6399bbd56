"""The layout of the boxes in annotation files, and boxes that contradict it.

A box contradicts its layout if it and its object's outlines have little in common, if it lies
mostly outside its image, or if it is smaller than the first pixel. Files as published may hold a
few such boxes. If many boxes of a file are such, it was written in another layout, such as corners
instead of width and height.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MANY = 0.05
"""Fraction of a file's boxes; if no more contradict their layout, or just one box, they stay."""
CONTRADICTION_IOU = 0.5
"""A box contradicts outlines, or the image, with a lower IoU than this."""
AGREEMENT = 0.9
"""Fraction of the contradicting boxes that another layout must explain, and their least IoU."""
XYWH = "left, top, width, height"
XYXY = "left, top, right, bottom"
FRACTIONS = "fractions of the image's width and height"


def _join(left: Floats, top: Floats, width: Floats, height: Floats) -> Floats:
    return np.stack([left, top, left + width, top + height], axis=-1)


TO_CORNERS: Mapping[str, Callable[[Floats, Floats, Floats, Floats], Floats]] = {
    XYXY: lambda a, b, c, d: np.stack([a, b, c, d], axis=-1),
    XYWH: _join,
    "center x, center y, width, height": lambda a, b, c, d: _join(a - c / 2, b - d / 2, c, d),
    "top, left, bottom, right": lambda a, b, c, d: np.stack([b, a, d, c], axis=-1),
    "top, left, height, width": lambda a, b, c, d: _join(b, a, d, c),
}
"""Corners (n, 4) of the boxes whose four numbers a layout names, each (n,)."""


def contradictions(
    numbers: Floats, extents: Floats, image_sizes: Floats, layout: str
) -> dict[int, str]:
    """Return the boxes that contradict a layout, with the reason; none if they are few.

    numbers (n, 4): as the files hold them. extents (n, 4): corners of each object's outlines, NaN
    for objects without any. image_sizes (n, 2): width and height in px.
    """
    boxes, outlined = _corners(numbers, layout), ~np.isnan(extents[:, 0])
    in_image = np.clip(boxes, 0, np.tile(image_sizes, 2))
    tiny = numbers.max(axis=1, initial=-np.inf) <= 1
    apart = _iou(boxes, np.where(outlined[:, None], extents, in_image)) < CONTRADICTION_IOU
    wrong = np.flatnonzero(tiny | apart)
    if len(wrong) <= max(1, MANY * len(numbers)):
        return {}
    if tiny[wrong].mean() >= AGREEMENT:
        look = FRACTIONS
    else:
        look = _explain(numbers[wrong], extents[wrong], image_sizes[wrong], layout)
    what = f"{len(wrong)} of {len(numbers)} boxes are wrong"
    if look:
        what += f" and look like {look}"
    reasons = {}
    for i in wrong.tolist():
        why = "lies mostly outside its image"
        if tiny[i]:
            why = "is smaller than a pixel"
        elif outlined[i]:
            why = "contradicts its outlines"
        box = ", ".join(f"{number:g}" for number in numbers[i])
        reasons[i] = f"box [{box}] {why}: {what}; expected {layout} in px"
    return reasons


def _explain(numbers: Floats, extents: Floats, image_sizes: Floats, layout: str) -> str:
    """Return the layout that explains most of these boxes; empty if none explains enough."""
    shares = {}
    for name in TO_CORNERS:
        boxes = _corners(numbers, name)
        positive = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        inside = (boxes[:, :2] >= -1).all(axis=1) & (boxes[:, 2:] <= image_sizes + 1).all(axis=1)
        same = _iou(boxes, extents) >= AGREEMENT
        shares[name] = (positive & np.where(np.isnan(extents[:, 0]), inside, same)).mean()
    del shares[layout]
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] >= AGREEMENT else ""


def _corners(numbers: Floats, layout: str) -> Floats:
    return TO_CORNERS[layout](*numbers.T)


def _iou(boxes: Floats, others: Floats) -> Floats:
    """Return the IoU (n,) of pairs of boxes (n, 4); 0 without area, NaN for NaN."""
    first = np.maximum(boxes[:, :2], others[:, :2])
    last = np.minimum(boxes[:, 2:], others[:, 2:])
    common = np.maximum(last - first, 0).prod(axis=1)
    area, other_area = (np.maximum(b[:, 2:] - b[:, :2], 0).prod(axis=1) for b in (boxes, others))
    iou: Floats = common / np.maximum(area + other_area - common, np.finfo(np.float64).tiny)
    return iou
