"""Pascal VOC 2007 and 2012: image labels, objects with boxes, segmentation masks.

Everingham et al., IJCV 2010 and 2015. Hariharan et al., ICCV 2011 (SBD) added masks.

voc07, voc12: one file per class and image set marks each image 1 (present), -1 (absent) or 0
(only difficult objects). 2007 has four published splits. The test labels of 2012 are not public:
test is the official val split, trainval the official train split, and val a seeded draw from it.

voc0712: trainval is the trainval of both years, test is the test of 2007, val a seeded draw.
Published boxes count pixels from 1 and include the last one. As in detectron2, left and top are
decreased by one, so that a box around the whole image goes from 0 to the width.

voc12_seg: test is VOC's val. trainval is "train_aug": VOC's train, and every image of SBD that is
not in VOC's val. VOC's masks take precedence over SBD's. val is a seeded draw. SBD has one MATLAB
file per image: `get-data` converts its masks to PNG files, once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from pretrain.pixels.image_names import is_hidden
from pretrain.running import stop
from pretrain.running.console import progress
from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import ImageFiles, Images, encode_names, read_mat
from transfer.datasets.info import SmallVersion, generated_sizes, info, source
from transfer.datasets.lists import read_list, read_names
from transfer.datasets.objects.box_layouts import XYXY, contradictions
from transfer.datasets.scenes import Scene, Scenes, box_fault, is_flat, without_objects
from transfer.datasets.segmented import Mask, Segmented, write_mask
from transfer.datasets.splits import uniform_split
from transfer.datasets.synthetic.voc import ADDED_MASKS, CLASSES, MASKED, SMALL_IMAGES, write_voc

SBD_FOLDER = "benchmark_RELEASE/dataset"
"""Folder of SBD in the data folder."""
GET_SBD = "To get SBD: python -m transfer get-data sbd"


def read_sbd_mask(file: Path) -> Mask:
    """Return the classes (H, W) of a file in cls/.

    Raises DataError if it contains none.
    """
    (content,) = read_mat(file, "GTcls")
    mask: Mask = content[0, 0]["Segmentation"]
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError(f"{file}: GTcls.Segmentation is not (H, W) in uint8. {GET_SBD}")
    return mask


def convert_sbd(data: Path) -> None:
    """Write SegmentationClassAug from SBD, if it and VOC 2012 exist.

    Existing masks are kept.
    """
    folder, voc = data / SBD_FOLDER / "cls", data / SEGMENTATION
    if not (folder.is_dir() and voc.is_dir()):
        return
    lists, masks = voc / "ImageSets" / "Segmentation", voc / "SegmentationClassAug"
    listed = {i for name in ("train", "val") for i in read_names(lists / f"{name}.txt")}
    to_add = sorted(_stems(folder, "*.mat") - listed)
    masks.mkdir(exist_ok=True)
    with progress("masks", "SBD", len(to_add)) as counter:
        for image_id in to_add:
            stop.exit_if_requested()
            file = masks / f"{image_id}.png"
            if not file.exists():
                write_mask(file, read_sbd_mask(folder / f"{image_id}.mat"))
            counter.add(1)


def _stems(folder: Path, pattern: str) -> set[str]:
    return {file.stem for file in folder.glob(pattern) if not is_hidden(file.name)}


SBD = source("sbd", finish=convert_sbd)


IMAGE_SETS = {
    "trainval": (("VOC2007", "trainval"), ("VOC2012", "trainval")),
    "test": (("VOC2007", "test"),),
}
CORNERS = ("xmin", "ymin", "xmax", "ymax")
CLASS_IDS = {name: i for i, name in enumerate(CLASSES)}
SEGMENTATION = "VOCdevkit/VOC2012"
MASK_CLASSES = ("background", *CLASSES)


def read_labels(year: str, data: Path, split: str, sizes: Sizes) -> Images:
    """Read VOCdevkit/VOC<year>/ImageSets/Main/CLASS_SPLIT.txt and JPEGImages."""
    is_drawn = year == "2012" and split != "test"
    image_set = {"2007": split, "2012": "train" if is_drawn else "val"}[year]
    folder = data / "VOCdevkit" / f"VOC{year}" / "ImageSets" / "Main"
    ids = read_names(folder / f"{image_set}.txt")
    files = (folder / f"{name}_{image_set}.txt" for name in CLASSES)
    marks = [dict(read_list(file, {"image": str, "mark": int})) for file in files]
    names = encode_names([f"VOCdevkit/VOC{year}/JPEGImages/{image_id}.jpg" for image_id in ids])
    labels = np.array([[mark[i] for mark in marks] for i in ids], dtype=np.int8)
    images = Images(ImageFiles(data, names), labels, CLASSES)
    return uniform_split(images, split, sizes) if is_drawn else images


def read_objects(data: Path, split: str, sizes: Sizes) -> Scenes:
    """Read ImageSets/Main/{trainval,test}.txt, Annotations and JPEGImages of both years."""
    scenes: list[Scene] = []
    log = _Log()
    for year, image_set in IMAGE_SETS["test" if split == "test" else "trainval"]:
        folder = f"VOCdevkit/{year}"
        list_file = data / folder / "ImageSets" / "Main" / f"{image_set}.txt"
        image_ids = read_names(list_file)
        if not image_ids or not (data / folder / "Annotations").is_dir():
            raise DataError(
                f"{list_file} is empty, or the folder Annotations is missing; unpack {year} again"
            )
        read = (_read_scene(data, folder, image_id, log) for image_id in image_ids)
        scenes += [scene for scene in read if scene is not None]
    wrong = _wrong_boxes(scenes)
    log.faults.extend(f"{log.usable[index]}: {reason}" for index, reason in wrong.items())
    split_scenes = Scenes(
        data, without_objects(scenes, wrong), CLASSES, faults=log.faults, lost=log.skipped_images
    )
    return uniform_split(split_scenes, split, sizes)


@dataclass(frozen=True)
class _Log:
    """Usable and broken objects and images, collected while scenes are read."""

    usable: list[str] = field(default_factory=list)
    """Names of the usable objects, in the order of the scenes' objects."""
    faults: list[str] = field(default_factory=list)
    """One line per broken object."""
    skipped_images: list[str] = field(default_factory=list)
    """One line per skipped image."""


def _wrong_boxes(scenes: list[Scene]) -> dict[int, str]:
    """Return the boxes in another layout, with reasons, if many."""
    boxes = np.concatenate([np.zeros((0, 4)), *(scene.boxes for scene in scenes)])
    published_boxes = boxes + np.array([1, 1, 0, 0])
    image_sizes = [(scene.width, scene.height) for scene in scenes for _ in scene.boxes]
    return contradictions(
        published_boxes,
        np.full_like(published_boxes, np.nan),
        np.array(image_sizes, dtype=np.float64).reshape(-1, 2),
        XYXY,
    )


def _read_scene(data: Path, folder: str, image_id: str, log: _Log) -> Scene | None:
    """Return an image with its usable objects, or None.

    It is None if the XML file is unusable.
    """
    file = f"{folder}/Annotations/{image_id}.xml"
    try:
        root = ElementTree.parse(data / file).getroot()
        width, height = (int(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
        if min(width, height) <= 0:
            raise ValueError(f"{width} x {height} px")
    except FileNotFoundError:
        log.skipped_images.append(f"{file}: missing")
        return None
    except (ElementTree.ParseError, ValueError) as error:
        log.skipped_images.append(f"{file}: no image size can be read ({error})")
        return None
    boxes, classes, difficult = [], [], []
    for number, element in enumerate(root.findall("object"), start=1):
        name, box = element.findtext("name", ""), _box(element)
        fault = "" if name in CLASS_IDS else f"class {name!r} is not one of the 20"
        fault = fault or box_fault(box, width, height)
        if fault:
            log.faults.append(f"{file}: object {number}: {fault}")
        elif not is_flat(box):
            boxes.append([box[0], box[1], box[0] + box[2], box[1] + box[3]])
            classes.append(CLASS_IDS[name])
            log.usable.append(f"{file}: object {number}")
            difficult.append(element.findtext("difficult", "0").strip() == "1")
    return Scene(
        name=f"{folder}/JPEGImages/{image_id}.jpg",
        image_id=image_id,
        width=width,
        height=height,
        boxes=np.array(boxes, dtype=np.float64).reshape(-1, 4),
        classes=np.array(classes, dtype=np.int64),
        aside=np.array(difficult, dtype=np.bool_),
    )


def _box(element: ElementTree.Element) -> list[float]:
    """Return left, top, width, height; empty if these are not four numbers."""
    texts = [element.findtext(f"bndbox/{corner}", "") for corner in CORNERS]
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        return []
    return [left - 1, top - 1, right - left + 1, bottom - top + 1]


def read_masks(data: Path, split: str, sizes: Sizes) -> Segmented:
    """Read ImageSets/Segmentation, SegmentationClass, SegmentationClassAug and JPEGImages.

    SegmentationClassAug may contain VOC's own images, too; VOC's masks of these are used.
    """
    folder = data / SEGMENTATION
    lists = folder / "ImageSets" / "Segmentation"
    train_ids, test_ids = (read_names(lists / f"{name}.txt") for name in ("train", "val"))
    if split == "test":
        return _images_and_masks(data, dict.fromkeys(test_ids, "SegmentationClass"))
    augmented = folder / "SegmentationClassAug"
    notes = []
    if not augmented.is_dir():
        command = "python -m transfer get-data voc12_seg"
        notes = [f"augmented masks: {augmented} is missing; {command}"]
    added = _stems(augmented, "*.png") - {*train_ids, *test_ids}
    mask_folders = dict.fromkeys(train_ids, "SegmentationClass")
    mask_folders |= dict.fromkeys(added, "SegmentationClassAug")
    trainval = _images_and_masks(data, dict(sorted(mask_folders.items())), notes)
    return uniform_split(trainval, split, sizes)


def _images_and_masks(
    data: Path, mask_folders: dict[str, str], notes: Sequence[str] = ()
) -> Segmented:
    """Return a split, given the folder of each image's mask."""
    images = [f"{SEGMENTATION}/JPEGImages/{i}.jpg" for i in mask_folders]
    masks = [f"{SEGMENTATION}/{folder}/{i}.png" for i, folder in mask_folders.items()]
    return Segmented(data, images, masks, MASK_CLASSES, notes=notes)


VOC07 = source("voc07")
VOC12 = source("voc12")
IMAGES07, IMAGES12 = SMALL_IMAGES["2007"], SMALL_IMAGES["2012"]
NUM_TRAINVAL = sum(images["train"] + images["val"] for images in (IMAGES07, IMAGES12))

DATASETS = {
    "voc07": info(
        "voc07",
        read=partial(read_labels, "2007"),
        small=SmallVersion(
            sizes=generated_sizes(20, IMAGES07["train"], IMAGES07["val"], IMAGES07["test"]),
            write=partial(write_voc, "2007"),
        ),
        sources=(VOC07,),
    ),
    "voc12": info(
        "voc12",
        read=partial(read_labels, "2012"),
        small=SmallVersion(
            sizes=generated_sizes(20, IMAGES12["train"] - 40, 40, IMAGES12["val"]),
            write=partial(write_voc, "2012"),
        ),
        sources=(VOC12,),
    ),
    "voc0712": info(
        "voc0712",
        read=read_objects,
        small=SmallVersion(
            sizes=generated_sizes(20, NUM_TRAINVAL - 60, 60, IMAGES07["test"]),
            needs=("voc07", "voc12"),
        ),
        sources=(VOC07, VOC12),
    ),
    "voc12_seg": info(
        "voc12_seg",
        read=read_masks,
        small=SmallVersion(
            sizes=generated_sizes(21, MASKED["train"] + ADDED_MASKS - 30, 30, MASKED["val"]),
            needs=("voc12",),
        ),
        sources=(VOC12, SBD),
    ),
}
