"""A small COCO 2017 in the published layout.

Objects are shapes on a plain background, filled with the pattern of their class. Persons have a dot
at each visible keypoint, at a fixed relative position. Some images contain no object, only a crowd,
only persons without a labeled keypoint, or an object in two pieces. Image and category ids have
gaps, as in the published files.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from transfer.datasets.info import facts
from transfer.datasets.synthetic.labeled import write_file
from transfer.datasets.synthetic.patterns import Pixels, jpeg, kinds_of_classes, paint

SMALL_IMAGES = {"train2017": 48, "val2017": 24}
FIRST_KIND = 14
CATEGORIES = {1: "person", 3: "car", 17: "cat", 18: "dog", 62: "chair"}
PERSON = 1
HEIGHT_PX, WIDTH_PX = 96, 128
KEYPOINTS: dict[str, tuple[float, float]] = facts()["keypoints"]
"""Relative position of each keypoint in the shape, in COCO's order."""
MARK_SHARES = (0.1, 0.1, 0.8)
"""Fractions of keypoints that are unlabeled, hidden and visible."""
DOT_PX = 1.5
EMPTY, ONLY_CROWD, NO_KEYPOINTS, WITH_CROWD, CUT = 11, 7, 3, 5, 9
"""Indices of the special images among every twelve."""

Outline = NDArray[np.float64]
"""Points (k, 2): x, y."""


@dataclass(frozen=True)
class Sketch:
    """An image being drawn, and its entries of the annotation files."""

    image_id: int
    canvas: Pixels
    phase: int
    """Index of the image among twelve, 0 to 11."""
    instances: list[dict[str, Any]]
    persons: list[dict[str, Any]]
    rng: np.random.Generator

    def paint(self, category: int, size_px: tuple[int, int]) -> Pixels:
        """Return pixels (H, W, 3) with the pattern of a category."""
        kinds = kinds_of_classes(len(CATEGORIES), FIRST_KIND)
        return paint(kinds[list(CATEGORIES).index(category)], size_px, self.rng)

    def add(self, keypoints: list[int] | None, **values: object) -> None:
        """Add one object; persons have keypoints."""
        number = 900_000_000 + 37 * len(self.instances)
        entry = {"id": number, "image_id": self.image_id, **values}
        self.instances.append(entry)
        if keypoints is not None:
            labeled = sum(mark > 0 for mark in keypoints[2::3])
            self.persons.append({**entry, "keypoints": keypoints, "num_keypoints": labeled})


def write_coco(root: Path, rng: np.random.Generator) -> None:
    """Write coco/ in `root`: train2017, val2017 and their annotations."""
    categories = [{"id": number, "name": name} for number, name in CATEGORIES.items()]
    person = {"id": PERSON, "name": "person", "keypoints": list(KEYPOINTS), "skeleton": []}
    for split, count in SMALL_IMAGES.items():
        images: list[dict[str, Any]] = []
        instances: list[dict[str, Any]] = []
        persons: list[dict[str, Any]] = []
        for i in range(count):
            number = (1_000 if split == "val2017" else 200_000) + 7 * i
            name = f"{number:012d}.jpg"
            size = {"height": HEIGHT_PX, "width": WIDTH_PX}
            images.append({"id": number, "file_name": name, **size})
            sketch = Sketch(number, _draw_ground(rng), i % 12, instances, persons, rng)
            _draw(sketch, list(CATEGORIES)[i % len(CATEGORIES)])
            write_file(root / "coco" / split / name, jpeg(sketch.canvas))
        rng.shuffle(images)  # the published files are not sorted either
        for kind, objects, classes in (
            ("instances", instances, categories),
            ("person_keypoints", persons, [person]),
        ):
            content = {"images": images, "annotations": objects, "categories": classes}
            file = root / "coco" / "annotations" / f"{kind}_{split}.json"
            write_file(file, json.dumps(content).encode())


def _draw_ground(rng: np.random.Generator) -> Pixels:
    color = rng.uniform(60, 190, size=3)
    return np.clip(color + rng.normal(0, 6, size=(HEIGHT_PX, WIDTH_PX, 1)), 0, 255).astype(np.uint8)


def _draw(sketch: Sketch, category: int) -> None:
    """Draw one or two objects, or one of the special images."""
    phase, rng, half = sketch.phase, sketch.rng, WIDTH_PX // 2
    if phase in (ONLY_CROWD, WITH_CROWD):
        _draw_crowd(sketch, half)
    if phase not in (EMPTY, ONLY_CROWD):
        _draw_figure(sketch, 0, PERSON if phase == NO_KEYPOINTS else category)
    if phase not in (EMPTY, ONLY_CROWD, WITH_CROWD, NO_KEYPOINTS):
        second = PERSON if rng.random() < 0.4 else int(rng.choice(list(CATEGORIES)))
        _draw_figure(sketch, half, second)


def _draw_figure(sketch: Sketch, start_x: int, category: int) -> None:
    """Draw a shape in one half of the image.

    Shapes are ellipses and rectangles; persons are tall ellipses.
    """
    rng = sketch.rng
    sides = ((32, 48), (64, 90)) if category == PERSON else ((32, 60), (32, 80))
    width, height = (int(rng.integers(*limits)) for limits in sides)
    x = start_x + int(rng.integers(1, WIDTH_PX // 2 - width))
    y = int(rng.integers(1, HEIGHT_PX - height))
    if category == PERSON or rng.random() < 0.5:
        outlines = [_ellipse(width, height)]
    elif sketch.phase == CUT:  # two pieces, as if occluded
        outlines = [_rectangle(share * width, 0.4 * width, height) for share in (0, 0.6)]
    else:
        outlines = [_rectangle(0, width, height)]
    outlines = [np.round(outline + np.array((x, y)), 2) for outline in outlines]
    _fill(sketch.canvas, sketch.paint(category, (height, width)), (x, y), outlines)
    keypoints = None
    if category == PERSON:
        keypoints = _draw_keypoints(sketch, (x, y), (width, height))
    corners = np.concatenate(outlines)
    low, high = corners.min(axis=0), corners.max(axis=0)
    sketch.add(
        keypoints,
        category_id=category,
        bbox=[round(float(v), 2) for v in (*low, *(high - low))],
        area=round(sum(map(_area, outlines)), 2),
        iscrowd=0,
        segmentation=[outline.ravel().tolist() for outline in outlines],
    )


def _ellipse(width: float, height: float) -> Outline:
    angles = np.arange(24) * 2 * np.pi / 24
    return np.stack([width / 2 * (1 + np.cos(angles)), height / 2 * (1 + np.sin(angles))], axis=1)


def _rectangle(x: float, width: float, height: float) -> Outline:
    x_end = x + width
    return np.array([(x, 0.0), (x_end, 0.0), (x_end, height), (x, height)])


def _area(outline: Outline) -> float:
    x, y = outline.T
    return float(abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2)


def _fill(
    canvas: Pixels, texture: Pixels, corner: tuple[int, int], outlines: Sequence[Outline]
) -> None:
    """Paste the texture where the outlines enclose it."""
    mask = Image.new("1", (canvas.shape[1], canvas.shape[0]))
    for outline in outlines:
        # outline coordinates are pixel corners, Pillow's are pixel centers
        ImageDraw.Draw(mask).polygon((outline - 0.5).ravel().tolist(), fill=1)
    x, y = corner
    region = (slice(y, y + texture.shape[0]), slice(x, x + texture.shape[1]))
    inside = np.asarray(mask)[region]
    canvas[region][inside] = texture[inside]


def _draw_keypoints(sketch: Sketch, corner: tuple[int, int], size: tuple[int, int]) -> list[int]:
    """Draw the visible keypoints; return x, y and mark of every keypoint.

    Left and right keypoints of a pair have the same color.
    """
    values: list[int] = []
    picture = Image.fromarray(sketch.canvas)
    pen = ImageDraw.Draw(picture)
    for i, shares in enumerate(KEYPOINTS.values()):
        x, y = (
            round(start + share * (length - 1))
            for start, share, length in zip(corner, shares, size, strict=True)
        )
        mark = int(sketch.rng.choice(3, p=MARK_SHARES)) if sketch.phase != NO_KEYPOINTS else 0
        values += [x, y, mark] if mark else [0, 0, 0]
        if mark == 2:
            pair = (i + 1) // 2  # 0 is the nose
            color = (255, 28 * pair, 255 - 28 * pair)
            pen.ellipse((x - DOT_PX, y - DOT_PX, x + DOT_PX, y + DOT_PX), fill=color)
    sketch.canvas[:] = np.asarray(picture)
    return values


def _draw_crowd(sketch: Sketch, start_x: int) -> None:
    """Draw a row of small persons with a single run-length annotation."""
    mask = np.zeros(sketch.canvas.shape[:2], dtype=np.bool_)
    for x in range(start_x + 2, WIDTH_PX - 14, 14):
        y = int(sketch.rng.integers(4, 12))
        texture = sketch.paint(PERSON, (30, 13))
        _fill(sketch.canvas, texture, (x, y), [_ellipse(13, 30) + np.array((x, y))])
        mask[y : y + 30, x : x + 13] = True
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    width, height = np.ptp(columns) + 1, np.ptp(rows) + 1
    sketch.add(
        [0] * 3 * len(KEYPOINTS),
        category_id=PERSON,
        bbox=[float(v) for v in (columns[0], rows[0], width, height)],
        area=int(mask.sum()),
        iscrowd=1,
        segmentation={"size": list(mask.shape), "counts": _run_lengths(mask)},
    )


def _run_lengths(mask: NDArray[np.bool_]) -> list[int]:
    """Return column-major run lengths, alternately outside and inside, outside first."""
    column = np.concatenate([[False], mask.ravel(order="F")])
    ends = [*np.flatnonzero(np.diff(column)), mask.size]
    return [int(n) for n in np.diff(ends, prepend=0)]
