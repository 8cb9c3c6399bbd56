"""Small VOC 2007 and 2012 in the published layout.

In each split, every class is present in some images and absent from others. Some objects are marked
difficult. If an image has only difficult objects of a class, its mark is 0.
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
"""Images of each published image set, by year."""
FIRST_KIND = 13
HEIGHT_PX, WIDTH_PX = 64, 96
NOT_DIFFICULT_FRACTION = 0.9
OUTLINE_RADIUS = 0.9
"""Inner radius of the outline of a disc of radius 1."""
MASKED = {"train": 60, "val": 40}
"""Number of images with a VOC mask, per image set."""
ADDED_MASKS = 40
"""Number of further train images with a mask only in SegmentationClassAug."""


OBJECT_XML = """<object><name>{}</name><difficult>{}</difficult>
<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"""


@dataclass(frozen=True)
class Object:
    """An object: class, box (left, top, right, bottom) in px."""

    label: int
    box: tuple[int, int, int, int]
    difficult: bool


def write_voc(year: str, root: Path, rng: np.random.Generator) -> None:
    """Write VOCdevkit/VOC<year> to `root`; only 2012 has masks."""
    kinds = kinds_of_classes(len(CLASSES), FIRST_KIND)
    folder = root / "VOCdevkit" / f"VOC{year}"
    objects: dict[str, dict[str, list[Object]]] = {}
    number = 0
    for image_set, count in SMALL_IMAGES[year].items():
        objects[image_set] = {}
        for i in range(count):
            number += 1
            image_id = f"{number:06d}" if year == "2007" else f"2008_{number:06d}"
            picture, inside = _draw_scene(i % len(CLASSES), kinds, rng)
            objects[image_set][image_id] = inside
            write_file(folder / "JPEGImages" / f"{image_id}.jpg", jpeg(picture))
            write_file(folder / "Annotations" / f"{image_id}.xml", _xml(inside))
    if year == "2012":
        write_masks(root, objects)
    objects["trainval"] = objects["train"] | objects["val"]
    for image_set, images in objects.items():
        write_lines(folder / "ImageSets" / "Main" / f"{image_set}.txt", sorted(images))
        for label, name in enumerate(CLASSES):
            lines = [f"{i} {_mark(images[i], label):2d}" for i in sorted(images)]
            write_lines(folder / "ImageSets" / "Main" / f"{name}_{image_set}.txt", lines)


def write_masks(root: Path, objects: dict[str, dict[str, list[Object]]]) -> None:
    """Write masks of some VOC 2012 images.

    Objects are outlined ellipses in their boxes.
    """
    folder = root / "VOCdevkit" / "VOC2012"
    for image_set, count in MASKED.items():
        names = list(objects[image_set])[:count]
        for image_id in names:
            _write_mask(folder / "SegmentationClass", image_id, objects[image_set][image_id])
        write_lines(folder / "ImageSets" / "Segmentation" / f"{image_set}.txt", names)
    first = MASKED["train"]
    for image_id in list(objects["train"])[first : first + ADDED_MASKS]:
        _write_mask(folder / "SegmentationClassAug", image_id, objects["train"][image_id])


def _write_mask(folder: Path, image_id: str, objects: list[Object]) -> None:
    mask = np.zeros((HEIGHT_PX, WIDTH_PX), dtype=np.uint8)
    y, x = np.mgrid[:HEIGHT_PX, :WIDTH_PX] + 0.5
    for obj in objects:
        left, top, right, bottom = obj.box
        across = (2 * x - left - right) / (right - left)
        radius = np.hypot(across, (2 * y - top - bottom) / (bottom - top))
        mask[radius < 1] = IGNORED
        mask[radius < OUTLINE_RADIUS] = obj.label + 1
    folder.mkdir(parents=True, exist_ok=True)
    write_mask(folder / f"{image_id}.png", mask)


def _draw_scene(
    label: int, kinds: list[int], rng: np.random.Generator
) -> tuple[Pixels, list[Object]]:
    """Return an image with one or two objects.

    The first object is never difficult.
    """
    if rng.random() < 0.4:
        box = (0, 0, WIDTH_PX, HEIGHT_PX)
        return paint(kinds[label], (HEIGHT_PX, WIDTH_PX), rng), [Object(label, box, False)]
    second_label = int(rng.integers(len(CLASSES)))
    half = WIDTH_PX // 2
    panels = [paint(kinds[c], (HEIGHT_PX, half), rng) for c in (label, second_label)]
    boxes = [(0, 0, half, HEIGHT_PX), (half, 0, WIDTH_PX, HEIGHT_PX)]
    if rng.random() < 0.5:
        panels.reverse()
        boxes.reverse()
    difficult = bool(rng.random() > NOT_DIFFICULT_FRACTION)
    objects = [Object(label, boxes[0], False), Object(second_label, boxes[1], difficult)]
    return np.concatenate(panels, axis=1), objects


def _mark(objects: list[Object], label: int) -> int:
    """Return VOC's mark of a class.

    It is 1 for present, 0 for only difficult objects, -1 for absent.
    """
    difficult = [obj.difficult for obj in objects if obj.label == label]
    if not difficult:
        return -1
    return 0 if all(difficult) else 1


def _xml(objects: list[Object]) -> bytes:
    """Return an annotation file.

    Published boxes count pixels from 1 and include the last.
    """
    entries = [
        OBJECT_XML.format(CLASSES[obj.label], int(obj.difficult), left + 1, top + 1, right, bottom)
        for obj in objects
        for left, top, right, bottom in [obj.box]
    ]
    size = f"<size><width>{WIDTH_PX}</width><height>{HEIGHT_PX}</height></size>"
    return "\n".join(["<annotation>", size, *entries, "</annotation>"]).encode()
