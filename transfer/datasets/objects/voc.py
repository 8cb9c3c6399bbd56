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
file per image: `convert-sbd` converts its masks to PNG files, once.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from pretrain.pixels.image_names import is_hidden
from pretrain.running import stop
from pretrain.running.atomic_files import write_whole
from pretrain.running.console import progress
from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import ImageFiles, Images, encode_names, read_mat
from transfer.datasets.info import SmallVersion, info, source, split_counts
from transfer.datasets.lists import read_list, read_names, read_pairs
from transfer.datasets.objects.box_layouts import XYXY, contradictions
from transfer.datasets.scenes import Scene, Scenes, box_fault, is_flat, without_objects
from transfer.datasets.segmented import Mask, Segmented, write_mask
from transfer.datasets.splits import uniform_split
from transfer.datasets.synthetic.voc import ADDED_MASKS, CLASSES, MASKED, SMALL_IMAGES, write_voc

SBD_FOLDERS = (
    "benchmark_RELEASE/dataset",
    "sbd",
    "SBD/dataset",
    "VOCdevkit/benchmark_RELEASE/dataset",
)
"""Usual folders of SBD in the data folder."""
AUGMENTED_LISTS = ("trainaug.txt", "train_aug.txt")
"""Names of the image list that is distributed with SegmentationClassAug."""
GET_SBD = (
    "Unpack benchmark.tgz from https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/"
    "semantic_contours/benchmark.tgz into the data folder (benchmark_RELEASE/dataset/cls/*.mat)."
)


def sbd_folder(data: Path) -> Path | None:
    """Return the folder that contains cls/*.mat, or None."""
    folders = (data / name for name in SBD_FOLDERS)
    return next((folder for folder in folders if (folder / "cls").is_dir()), None)


def read_sbd_mask(file: Path) -> Mask:
    """Return the classes (H, W) of a file in cls/.

    DataError if it contains none.
    """
    try:
        (content,) = read_mat(file, "GTcls")
        classes = np.asarray(content[0, 0]["Segmentation"])
        mask = classes.astype(np.uint8)
        if classes.ndim == 2 and np.array_equal(mask, classes):
            return mask
        reason = f"{classes.dtype} of shape {classes.shape}"
    except (LookupError, ValueError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise DataError(
        f"{file}: has no GTcls.Segmentation (H, W) with ids from 0 to 255 ({reason}). {GET_SBD}"
    )


def convert_sbd(data: Path, sbd: Path | None = None) -> int:
    """Write SegmentationClassAug and trainaug.txt from SBD; return the number of masks.

    Existing masks and list entries are kept. The list is written after all masks.
    """
    folder = sbd or sbd_folder(data)
    if folder is None or not (folder / "cls").is_dir():
        searched = folder or " or ".join(str(data / name) for name in SBD_FOLDERS)
        raise DataError(f"SBD is missing: no cls/*.mat in {searched}. {GET_SBD}")
    voc = data / "VOCdevkit" / "VOC2012"
    lists, masks = voc / "ImageSets" / "Segmentation", voc / "SegmentationClassAug"
    train_ids, test_ids = (read_ids(lists / f"{name}.txt") for name in ("train", "val"))
    files = (file for file in (folder / "cls").glob("*.mat") if not is_hidden(file.name))
    to_add = sorted({file.stem for file in files} - {*train_ids, *test_ids})
    masks.mkdir(exist_ok=True)
    with progress("masks", "SBD", len(to_add)) as counter:
        for image_id in to_add:
            stop.exit_if_requested()
            file = masks / f"{image_id}.png"
            if not file.exists():
                write_mask(file, read_sbd_mask(folder / "cls" / f"{image_id}.mat"))
            counter.add(1)
    earlier_lists = [read_ids(lists / name) for name in AUGMENTED_LISTS if (lists / name).exists()]
    image_ids = sorted({*train_ids, *to_add}.union(*earlier_lists) - {*test_ids})
    list_file = lists / AUGMENTED_LISTS[0]
    write_whole(list_file, "".join(f"{image_id}\n" for image_id in image_ids).encode(), "--data")
    return len(to_add)


def read_ids(list_file: Path) -> list[str]:
    """Return the image ids of a list of ids or paths."""
    rows = read_list(list_file, {"image": str}, extra="ignored")
    return [Path(image).stem for _, (image,) in rows]


def finish_conversion(data: Path) -> None:
    """Convert SBD if it exists and is not converted yet."""
    lists = data / "VOCdevkit" / "VOC2012" / "ImageSets" / "Segmentation"
    listed = any((lists / name).exists() for name in AUGMENTED_LISTS)
    if sbd_folder(data) is not None and lists.is_dir() and not listed:
        convert_sbd(data)


SBD = source("sbd", finish=finish_conversion)


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
    columns = [_read_marks(folder / f"{name}_{image_set}.txt", ids) for name in CLASSES]
    names = encode_names([f"VOCdevkit/VOC{year}/JPEGImages/{image_id}.jpg" for image_id in ids])
    labels = np.ascontiguousarray(np.array(columns, dtype=np.int8).T)
    images = Images(ImageFiles(data, names), labels, CLASSES)
    return uniform_split(images, split, sizes) if is_drawn else images


def _read_marks(file: Path, ids: list[str]) -> list[int]:
    """Return the mark (1, 0, -1) of each image for one class."""
    marks = read_pairs(file, {"image": str, "mark": int})
    missing = [image_id for image_id in ids if image_id not in marks]
    if missing or not set(marks.values()) <= {1, 0, -1}:
        raise DataError(
            f"{file}: {len(marks)} lines with the marks {sorted(set(marks.values()))}; expected "
            f"1, 0 or -1 for each of {len(ids)} images; {len(missing)} have none {missing[:1]}"
        )
    return [marks[image_id] for image_id in ids]


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
    """Read ImageSets/Segmentation, SegmentationClass, SegmentationClassAug and JPEGImages."""
    lists = data / SEGMENTATION / "ImageSets" / "Segmentation"
    test_ids = read_ids(lists / "val.txt")
    if split == "test":
        return _images_and_masks(data, test_ids, frozenset(test_ids), "")
    train_ids = read_ids(lists / "train.txt")
    added, source = _added_ids(data, frozenset([*train_ids, *test_ids]))
    trainval = _images_and_masks(data, sorted([*train_ids, *added]), frozenset(train_ids), source)
    return uniform_split(trainval, split, sizes)


def _images_and_masks(
    data: Path, image_ids: list[str], voc_ids: frozenset[str], source: str
) -> Segmented:
    """Return a split.

    Masks of `voc_ids` are VOC's, all others are augmented masks.
    """
    if not image_ids:
        raise DataError(f"no image is listed in {data / SEGMENTATION}/ImageSets/Segmentation")
    mask_folders = (
        "SegmentationClass" if i in voc_ids else "SegmentationClassAug" for i in image_ids
    )
    return Segmented(
        data,
        [f"{SEGMENTATION}/JPEGImages/{i}.jpg" for i in image_ids],
        [f"{SEGMENTATION}/{f}/{i}.png" for f, i in zip(mask_folders, image_ids, strict=True)],
        MASK_CLASSES,
        notes=[source] if source else [],
    )


def _added_ids(data: Path, listed: frozenset[str]) -> tuple[list[str], str]:
    """Return the ids with augmented masks, and a line about their source."""
    folder, sbd = data / SEGMENTATION / "SegmentationClassAug", sbd_folder(data)
    if not folder.is_dir() and sbd is None:
        return [], "augmented masks: neither SegmentationClassAug nor SBD is there"
    if not folder.is_dir():
        return [], (
            f"augmented masks: SBD's .mat files in {sbd}, not converted yet; once: "
            f"python -m transfer convert-sbd --data {data}"
        )
    for name in AUGMENTED_LISTS:
        list_file = data / SEGMENTATION / "ImageSets" / "Segmentation" / name
        if list_file.is_file():
            added = set(read_ids(list_file)) - listed
            return sorted(added), f"augmented masks: SegmentationClassAug, listed in {name}"
    added = {file.stem for file in folder.glob("*.png") if not is_hidden(file.name)} - listed
    return sorted(added), "augmented masks: SegmentationClassAug, all files but VOC's own"


def _small(
    trainval: int, val: int, test: int, classes: int = len(CLASSES), **written: Any
) -> SmallVersion:
    counts = split_counts(trainval - val, val, test)
    return SmallVersion(sizes=Sizes(classes=classes, counts=counts, drawn=True), **written)


VOC07 = source("voc07")
VOC12 = source("voc12")
IMAGES07, IMAGES12 = SMALL_IMAGES["2007"], SMALL_IMAGES["2012"]
TRAINVAL07, TRAINVAL12 = (images["train"] + images["val"] for images in (IMAGES07, IMAGES12))

DATASETS = {
    "voc07": info(
        "voc07",
        read=partial(read_labels, "2007"),
        small=_small(
            TRAINVAL07, IMAGES07["val"], IMAGES07["test"], write=partial(write_voc, "2007")
        ),
        sources=(VOC07,),
    ),
    "voc12": info(
        "voc12",
        read=partial(read_labels, "2012"),
        small=_small(IMAGES12["train"], 40, IMAGES12["val"], write=partial(write_voc, "2012")),
        sources=(VOC12,),
    ),
    "voc0712": info(
        "voc0712",
        read=read_objects,
        small=_small(TRAINVAL07 + TRAINVAL12, 60, IMAGES07["test"], needs=("voc07", "voc12")),
        sources=(VOC07, VOC12),
    ),
    "voc12_seg": info(
        "voc12_seg",
        read=read_masks,
        small=_small(
            MASKED["train"] + ADDED_MASKS,
            30,
            MASKED["val"],
            classes=len(MASK_CLASSES),
            needs=("voc12",),
        ),
        sources=(VOC12, SBD),
    ),
}
