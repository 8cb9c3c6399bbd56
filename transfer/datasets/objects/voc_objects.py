"""Pascal VOC 2007 and 2012 with their objects, Everingham et al., IJCV 2010.

trainval is the trainval of both years, test is the test of 2007, val a seeded draw from trainval.
A published box counts pixels from 1 and includes the last; as in detectron2, its left and top are
lowered by one, so that a box around the whole image goes from 0 to the width.
"""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.info import SmallVersion, info, split_counts
from transfer.datasets.objects.voc import VOC07, VOC12
from transfer.datasets.objects.voc_classes import CLASSES
from transfer.datasets.scene_arrays import Scene
from transfer.datasets.scenes import Scenes, box_fault, box_note, is_flat
from transfer.datasets.splits import uniform_split_by_sizes
from transfer.datasets.synthetic.voc import SMALL_IMAGES

IMAGE_SETS = {
    "trainval": (("VOC2007", "trainval"), ("VOC2012", "trainval")),
    "test": (("VOC2007", "test"),),
}
CORNERS = ("xmin", "ymin", "xmax", "ymax")
CLASS_IDS = {name: i for i, name in enumerate(CLASSES)}
SMALL_VAL = 60
"""Images of the small set that are held out as val."""


def read_voc0712(data: Path, split: str, sizes: Sizes) -> Scenes:
    """Read ImageSets/Main/{trainval,test}.txt, Annotations and JPEGImages of both years."""
    scenes: list[Scene] = []
    faults: list[str] = []
    notes: list[str] = []
    for year, image_set in IMAGE_SETS["test" if split == "test" else "trainval"]:
        folder = f"VOCdevkit/{year}"
        list_file = data / folder / "ImageSets" / "Main" / f"{image_set}.txt"
        image_ids = list_file.read_text().split()
        if not image_ids:
            raise DataError(f"{list_file} is empty; unpack VOC {year[3:]} again")
        if not (data / folder / "Annotations").is_dir():
            raise DataError(f"{data / folder / 'Annotations'} is not there")
        for image_id in image_ids:
            scene = _read_scene(data, folder, image_id, faults, notes)
            if scene is not None:
                scenes.append(scene)
    published = Scenes(data, scenes, CLASSES, faults=faults, notes=notes)
    return published if split == "test" else uniform_split_by_sizes(published, split, sizes)


def _read_scene(
    data: Path, folder: str, image_id: str, faults: list[str], notes: list[str]
) -> Scene | None:
    """Return an image with its usable objects; append a line for each other one to `faults`."""
    where = f"{folder}/Annotations/{image_id}.xml"
    try:
        root = ElementTree.parse(data / where).getroot()
        width, height = (int(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
    except FileNotFoundError:
        faults.append(f"{where}: missing")
        return None
    except (ElementTree.ParseError, ValueError) as error:
        faults.append(f"{where}: no image size can be read ({error})")
        return None
    if min(width, height) <= 0:
        faults.append(f"{where}: the image is said to have {width} x {height} px")
        return None
    boxes, classes, difficult = [], [], []
    for number, thing in enumerate(root.findall("object"), start=1):
        name, box = thing.findtext("name", ""), _box(thing)
        why = "" if name in CLASS_IDS else f"class {name!r} is not one of the 20"
        why = why or box_fault(box, width, height)
        if why:
            faults.append(f"{where}: object {number}: {why}")
            continue
        note = box_note(box, width, height)
        if note:
            notes.append(f"{where}: object {number}: {note}")
        if not is_flat(box):
            boxes.append([box[0], box[1], box[0] + box[2], box[1] + box[3]])
            classes.append(CLASS_IDS[name])
            difficult.append(thing.findtext("difficult", "0").strip() == "1")
    return Scene(
        name=f"{folder}/JPEGImages/{image_id}.jpg",
        image_id=image_id,
        width=width,
        height=height,
        boxes=np.array(boxes, dtype=np.float64).reshape(-1, 4),
        classes=np.array(classes, dtype=np.int64),
        aside=np.array(difficult, dtype=np.bool_),
    )


def _box(thing: ElementTree.Element) -> list[float]:
    """Return left, top, width, height; an empty list if the file does not hold four numbers."""
    texts = [thing.findtext(f"bndbox/{corner}", "") for corner in CORNERS]
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        return []
    return [left - 1, top - 1, right - left + 1, bottom - top + 1]


def _small_sizes() -> Sizes:
    images07, images12 = SMALL_IMAGES["2007"], SMALL_IMAGES["2012"]
    trainval = sum(images["train"] + images["val"] for images in (images07, images12))
    counts = split_counts(trainval - SMALL_VAL, SMALL_VAL, images07["test"])
    return Sizes(classes=len(CLASSES), counts=counts, drawn=True)


DATASETS = {
    "voc0712": info(
        "voc0712",
        read=read_voc0712,
        small=SmallVersion(sizes=_small_sizes(), needs=("voc07", "voc12")),
        sources=(VOC07, VOC12),
    ),
}
