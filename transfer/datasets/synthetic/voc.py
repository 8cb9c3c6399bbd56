"""Small VOC 2007 and 2012 in the published layout: images, XML, image sets and masks.

Every class is present and absent in each split, and some objects are marked difficult; a class of
which an image has only difficult objects has the mark 0.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transfer.datasets.info import facts
from transfer.datasets.segmented import IGNORED, write_mask
from transfer.datasets.synthetic.labeled import write_file, write_lines
from transfer.datasets.synthetic.patterns import Pixels, jpeg, kinds_of_classes, paint

CLASSES: tuple[str, ...] = facts()["voc_classes"]
"""VOC's twenty classes."""
SMALL_IMAGES: dict[str, dict[str, int]] = {
    "2007": {"train": 100, "val": 100, "test": 160},
    "2012": {"train": 200, "val": 160},
}
"""Images of each published set, by year."""
FIRST_KIND = 13
HEIGHT_PX, WIDTH_PX = 64, 96
NOT_DIFFICULT_SHARE = 0.9
OUTLINE_RADIUS = 0.9
"""Radius at which the outline of a disc of radius 1 begins."""
MASKED = {"train": 60, "val": 40}
"""Number of images with a mask of VOC's own, the first of each set; the classes take turns."""
ADDED_MASKS = 40
"""Number of further images of train that have a mask in SegmentationClassAug alone."""


OBJECT = """<object><name>{}</name><difficult>{}</difficult>
<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"""


@dataclass(frozen=True)
class Thing:
    """One object: class, box (left, top, right, bottom) in pixels."""

    label: int
    box: tuple[int, int, int, int]
    difficult: bool


def write_voc(year: str, root: Path, rng: np.random.Generator) -> None:
    """Write VOCdevkit/VOC<year> below `root`; masks in 2012 only."""
    kinds = kinds_of_classes(len(CLASSES), FIRST_KIND)
    folder = root / "VOCdevkit" / f"VOC{year}"
    things: dict[str, dict[str, list[Thing]]] = {}
    number = 0
    for image_set, count in SMALL_IMAGES[year].items():
        things[image_set] = {}
        for i in range(count):
            number += 1
            image_id = f"{number:06d}" if year == "2007" else f"2008_{number:06d}"
            picture, inside = _draw_scene(i % len(CLASSES), kinds, rng)
            things[image_set][image_id] = inside
            write_file(folder / "JPEGImages" / f"{image_id}.jpg", jpeg(picture))
            write_file(folder / "Annotations" / f"{image_id}.xml", _xml(inside))
    if year == "2012":
        write_masks(root, things)
    things["trainval"] = things["train"] | things["val"]
    for image_set, images in things.items():
        write_lines(folder / "ImageSets" / "Main" / f"{image_set}.txt", sorted(images))
        for label, name in enumerate(CLASSES):
            lines = [f"{i} {_mark(images[i], label):2d}" for i in sorted(images)]
            write_lines(folder / "ImageSets" / "Main" / f"{name}_{image_set}.txt", lines)


def write_masks(root: Path, things: dict[str, dict[str, list[Thing]]]) -> None:
    """Write masks of some images of VOC 2012: each object is an ellipse in its box, outlined."""
    folder = root / "VOCdevkit" / "VOC2012"
    for image_set, count in MASKED.items():
        names = list(things[image_set])[:count]
        for image_id in names:
            _write_mask(folder / "SegmentationClass", image_id, things[image_set][image_id])
        write_lines(folder / "ImageSets" / "Segmentation" / f"{image_set}.txt", names)
    first = MASKED["train"]
    for image_id in list(things["train"])[first : first + ADDED_MASKS]:
        _write_mask(folder / "SegmentationClassAug", image_id, things["train"][image_id])


def _write_mask(folder: Path, image_id: str, things: list[Thing]) -> None:
    mask = np.zeros((HEIGHT_PX, WIDTH_PX), dtype=np.uint8)
    y, x = np.mgrid[:HEIGHT_PX, :WIDTH_PX] + 0.5
    for thing in things:
        left, top, right, bottom = thing.box
        across = (2 * x - left - right) / (right - left)
        radius = np.hypot(across, (2 * y - top - bottom) / (bottom - top))
        mask[radius < 1] = IGNORED
        mask[radius < OUTLINE_RADIUS] = thing.label + 1
    folder.mkdir(parents=True, exist_ok=True)
    write_mask(folder / f"{image_id}.png", mask)


def _draw_scene(
    label: int, kinds: list[int], rng: np.random.Generator
) -> tuple[Pixels, list[Thing]]:
    """Return an image and its objects: one, or two side by side; the first is never difficult."""
    if rng.random() < 0.4:
        box = (0, 0, WIDTH_PX, HEIGHT_PX)
        return paint(kinds[label], (HEIGHT_PX, WIDTH_PX), rng), [Thing(label, box, False)]
    other = int(rng.integers(len(CLASSES)))
    half = WIDTH_PX // 2
    panels = [paint(kinds[c], (HEIGHT_PX, half), rng) for c in (label, other)]
    boxes = [(0, 0, half, HEIGHT_PX), (half, 0, WIDTH_PX, HEIGHT_PX)]
    if rng.random() < 0.5:
        panels.reverse()
        boxes.reverse()
    difficult = bool(rng.random() > NOT_DIFFICULT_SHARE)
    things = [Thing(label, boxes[0], False), Thing(other, boxes[1], difficult)]
    return np.concatenate(panels, axis=1), things


def _mark(things: list[Thing], label: int) -> int:
    """Return VOC's mark of a class: 1 present, 0 only difficult objects, -1 absent."""
    difficult = [thing.difficult for thing in things if thing.label == label]
    if not difficult:
        return -1
    return 0 if all(difficult) else 1


def _xml(things: list[Thing]) -> bytes:
    """Return an annotation; the published boxes count pixels from 1 and include the last."""
    objects = [
        OBJECT.format(CLASSES[thing.label], int(thing.difficult), left + 1, top + 1, right, bottom)
        for thing in things
        for left, top, right, bottom in [thing.box]
    ]
    size = f"<size><width>{WIDTH_PX}</width><height>{HEIGHT_PX}</height></size>"
    return "\n".join(["<annotation>", size, *objects, "</annotation>"]).encode()
