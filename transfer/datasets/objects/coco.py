"""COCO 2017: object outlines and person keypoints.

Source: Lin et al., ECCV 2014, arXiv:1405.0312. Annotations are read as in detectron2, so that both
engines train on the same objects. Images and classes are ordered by id. An outline has at least
three points; objects without an outline are skipped. Classes of val2017 and train2017 are matched
by name, since their ids may differ.

trainval is train2017. test is val2017, the papers' test set. val is a seeded draw from train2017,
used to choose learning rates.
"""

import copy
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pretrain.running.reading import read_bytes
from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.info import DatasetInfo, SmallVersion, facts, info, source, split_counts
from transfer.datasets.objects.annotation_store import read_once, stored_scenes
from transfer.datasets.objects.box_layouts import XYWH, contradictions
from transfer.datasets.scenes import (
    Scene,
    Scenes,
    box_fault,
    is_flat,
    is_number,
    name_differences,
    without_objects,
)
from transfer.datasets.splits import uniform_split
from transfer.datasets.synthetic.coco import CATEGORIES, SMALL_IMAGES, write_coco

KEYPOINTS: list[str] = list(facts()["keypoints"])
"""Names of a person's keypoints, in their order."""
NUM_KEYPOINTS = len(KEYPOINTS)
Kind = Literal["instances", "person_keypoints"]


def annotation_fault(
    annotation: dict[str, Any], image: dict[str, Any], kind: str, classes: Mapping[int, int]
) -> str:
    """Return why an annotation cannot be used; empty if it can.

    Some of the checked values are only used by pycocotools, after the training.
    """
    category, crowd, area, mask = (
        annotation.get(key) for key in ("category_id", "iscrowd", "area", "segmentation")
    )
    if not isinstance(category, int) or category not in classes:
        return f"category {category} is not among the categories"
    if crowd not in (0, 1):
        return f"its iscrowd is {crowd}, not 0 or 1"
    if not is_number(area) or area < 0:
        return f"its area is {area}, not a finite number from 0"
    reason = box_fault(annotation.get("bbox"), image["width"], image["height"])
    # persons with keypoints have the same outlines as in the instances file, and the same faults
    if not reason and (kind == "instances" or mask):
        reason = _mask_fault(mask, bool(crowd), [image["height"], image["width"]])
    if not reason and kind == "person_keypoints":
        reason = _keypoint_fault(annotation)
    return reason


def _mask_fault(mask: object, crowd: bool, size: list[int]) -> str:
    """Return the fault of outlines or run lengths, "" if valid.

    size: H, W.
    """
    if isinstance(mask, dict):
        if not crowd:
            return "its mask is run lengths, which only crowds have; outlines are needed"
        if mask.get("size") != size:
            return f"its mask is {mask.get('size')}, the image {size} (height, width)"
        counts = mask.get("counts")
        if isinstance(counts, list) and all(isinstance(n, int) and n >= 0 for n in counts):
            return "" if sum(counts) == math.prod(size) else f"its run lengths do not cover {size}"
        return "" if isinstance(counts, str) else f"its run lengths are {counts}, not integers"
    outlines = list(filter(is_outline, mask)) if isinstance(mask, list) else []
    if not outlines:
        return "it has no outline of three points or more"
    if not all(map(_is_finite, outlines)):
        return "its outline has a value that is not a finite number"
    return ""


def is_outline(outline: object) -> bool:
    """Return whether one polygon of a mask has at least three points."""
    return isinstance(outline, list) and len(outline) >= 6 and len(outline) % 2 == 0


def _is_finite(values: list[Any]) -> bool:
    try:
        return math.isfinite(sum(values))
    except (TypeError, OverflowError):
        return False


def _keypoint_fault(annotation: dict[str, Any]) -> str:
    labeled, values = annotation.get("num_keypoints"), annotation.get("keypoints")
    if not isinstance(labeled, int):
        return f"its num_keypoints is {labeled}, not an integer"
    if not isinstance(values, list) or len(values) != 3 * NUM_KEYPOINTS or not _is_finite(values):
        return f"its keypoints are not {3 * NUM_KEYPOINTS} finite numbers"
    if not {0, 1, 2}.issuperset(values[2::3]):
        return f"its keypoints have the marks {sorted(set(values[2::3]))}, not 0, 1 or 2"
    return ""


FOLDER = "coco"
UNPACK = "unpack annotations_trainval2017.zip again"
SMALL_VAL = 12
"""Number of val images in the small dataset."""
Numbered = tuple[int, dict[str, Any]]
"""An image's id or an annotation's index, and its entry."""
State = tuple[int, int, int]
"""Size, modification and change time of a file."""

_opened: dict[Path, tuple[State, Scenes]] = {}
"""Annotation files that this process has parsed; a run opens them repeatedly."""


def read_coco(kind: Kind, data: Path, split: str, sizes: Sizes) -> Scenes:
    """Read coco/annotations/KIND_{train,val}2017.json; images in coco/{train,val}2017."""
    train = _file(kind, data, "train2017")
    if split != "test":
        return uniform_split(_open(train), split, sizes)
    test = _open(_file(kind, data, "val2017"))
    if not train.is_file():  # for testing only
        return test
    classes = _open(train).class_names
    if set(test.class_names) != set(classes):
        raise DataError(
            f"{test.annotations}: its categories differ from {train.name}: "
            f"{name_differences(test.class_names, classes)}; both files need the same names"
        )
    return test.with_classes(classes)


def _open(file: Path) -> Scenes:
    """Return the scenes of an annotation file, parsed once per process."""
    state = _state(file)
    if not _is_opened(file):
        _opened[file] = state, _parse_scenes(file, read_bytes(file))
    # a copy without the cached fingerprint, since image files may change
    return copy.copy(_opened[file][1])


def load_coco(kind: Kind, data: Path, cache: Path, parse: bool) -> None:
    """Load the annotation files from the cache, or parse and store them."""
    for split in ("train2017", "val2017"):
        file = _file(kind, data, split)
        if file.is_file() and (parse or not _is_opened(file)):
            state = _state(file)
            scenes = read_once(file, cache, _parse_scenes) if parse else stored_scenes(file, cache)
            if scenes is not None:
                _opened[file] = state, scenes


def _file(kind: Kind, data: Path, split: str) -> Path:
    return data / FOLDER / "annotations" / f"{kind}_{split}.json"


def _state(file: Path) -> State:
    status = file.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_opened(file: Path) -> bool:
    return file in _opened and _opened[file][0] == _state(file)


def _parse_scenes(file: Path, content: bytes) -> Scenes:
    """Return the scenes of an annotation file (slow for train2017)."""
    data = file.parents[2]
    kind, _, split = file.stem.rpartition("_")
    lists = _parse(file, content)
    names = _categories(file, lists["categories"], kind)
    classes = {number: label for label, number in enumerate(names)}
    log = _Log(file=file.relative_to(data).as_posix(), kind=kind, classes=classes)
    images = _images(file, lists["images"], log)
    objects = _by_image(lists["annotations"], images, log)
    scenes = [
        _scene(f"{FOLDER}/{split}", image, objects.pop(number), log)
        for number, image in images
        if _has_size(image)
    ]
    wrong = _wrong_boxes(scenes, log)
    for index, reason in wrong.items():
        log.add_broken(log.usable[index], reason)
    return Scenes(
        data,
        without_objects(scenes, wrong) if wrong else scenes,
        list(names.values()),
        category_ids=list(names),
        annotations=file,
        faulty=log.faulty,
        faults=log.faults,
        lost=log.skipped_images,
    )


@dataclass(frozen=True, kw_only=True)
class _Log:
    """Faults of one annotation file, collected while its scenes are read."""

    file: str
    """Name of the file, for messages."""
    kind: str
    classes: Mapping[int, int]
    """Class of each category id."""
    faulty: set[int] = field(default_factory=set)
    """Indices of the broken annotations."""
    faults: list[str] = field(default_factory=list)
    skipped_images: list[str] = field(default_factory=list)
    """One line per skipped image."""
    usable: list[Numbered] = field(default_factory=list)
    """The usable annotations, in the order of the scenes' objects."""

    def add_broken(self, numbered: Numbered, reason: str) -> None:
        """Log a broken annotation and the reason."""
        index, annotation = numbered
        image, number = annotation.get("image_id"), annotation.get("id")
        self.faulty.add(index)
        self.faults.append(f"{self.file}: image {image}, annotation {number}: {reason}")


def _parse(file: Path, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DataError(f"{file} is not valid JSON ({error}); {UNPACK}") from error
    for key in ("images", "annotations", "categories"):
        entries = content.get(key) if isinstance(content, dict) else None
        is_complete = isinstance(entries, list) and all(
            isinstance(entry, dict) for entry in entries
        )
        if not is_complete or not entries:
            raise DataError(f"{file} is not a COCO annotation file: it has no {key}; {UNPACK}")
    return dict(content)


def _categories(file: Path, entries: list[dict[str, Any]], kind: str) -> dict[int, str]:
    """Return the category names by category id, ordered by id.

    DataError if an id or name occurs twice, or if keypoints are not in COCO's order: flips and
    the metric's sigmas depend on it.
    """
    names = {
        entry["id"]: entry["name"]
        for entry in entries
        if isinstance(entry.get("id"), int) and isinstance(entry.get("name"), str)
    }
    if len(names) < len(entries):
        raise DataError(f"{file}: categories without a name or a unique id; {UNPACK}")
    if twice := [name for name, count in Counter(names.values()).items() if count > 1]:
        raise DataError(f"{file}: several categories have the name {twice[0]!r}; rename them")
    if kind == "person_keypoints":
        for entry in entries:
            points = entry.get("keypoints", KEYPOINTS)
            if points != KEYPOINTS:
                raise DataError(
                    f"{file}: category {entry['name']!r} has the keypoints {points}; expected "
                    f"COCO's, in this order: {', '.join(KEYPOINTS)}"
                )
    return dict(sorted(names.items()))


def _images(file: Path, entries: list[dict[str, Any]], log: _Log) -> list[Numbered]:
    """Return id and entry of each image, ordered by id."""
    images: dict[int, dict[str, Any]] = {}
    for entry in entries:
        numbers = [entry.get(key) for key in ("id", "width", "height")]
        if not all(isinstance(n, int) for n in numbers) or "file_name" not in entry:
            raise DataError(
                f"{file}: an image without a number, width, height or file_name: {entry}; {UNPACK}"
            )
        if entry["id"] in images:
            log.skipped_images.append(f"{log.file}: image {entry['id']} is listed more than once")
            continue
        images[entry["id"]] = entry
        if not _has_size(entry):
            size = f"{entry['width']} x {entry['height']} px"
            log.skipped_images.append(
                f"{log.file}: image {entry['id']} has an invalid size, {size}"
            )
    return sorted(images.items())


def _has_size(image: Mapping[str, Any]) -> bool:
    return bool(image["width"] > 0 and image["height"] > 0)


def _by_image(
    annotations: list[dict[str, Any]], images: list[Numbered], log: _Log
) -> dict[int, list[Numbered]]:
    """Return the annotations of each image, in the order of the file."""
    objects: dict[int, list[Numbered]] = {number: [] for number, _ in images}
    used_numbers: set[int] = set()
    for numbered in enumerate(annotations):
        image, number = numbered[1].get("image_id"), numbered[1].get("id")
        if not isinstance(number, int):
            log.add_broken(numbered, "its id is not an integer")
            continue
        if number in used_numbers:
            log.add_broken(numbered, "the id is used more than once")
        elif not isinstance(image, int) or image not in objects:
            log.add_broken(numbered, "the image is not listed")
        else:
            objects[image].append(numbered)
        used_numbers.add(number)
    return objects


def _scene(folder: str, image: dict[str, Any], annotations: list[Numbered], log: _Log) -> Scene:
    """Return an image with its usable annotations; log the others."""
    usable = []
    for numbered in annotations:
        annotation = numbered[1]
        reason = annotation_fault(annotation, image, log.kind, log.classes)
        if reason:
            log.add_broken(numbered, reason)
        elif not is_flat(annotation["bbox"]):
            usable.append(annotation)
            log.usable.append(numbered)
    boxes = np.array([entry["bbox"] for entry in usable], dtype=np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]  # left, top, width, height to corners
    classes = [log.classes[entry["category_id"]] for entry in usable]
    return Scene(
        name=f"{folder}/{image['file_name']}",
        image_id=image["id"],
        width=image["width"],
        height=image["height"],
        boxes=boxes,
        classes=np.array(classes, dtype=np.int64),
        aside=np.array([bool(entry["iscrowd"]) for entry in usable], dtype=np.bool_),
        polygons=tuple(map(_outlines, usable)) if log.kind == "instances" else None,
        keypoints=_keypoints(usable) if log.kind == "person_keypoints" else None,
    )


def _wrong_boxes(scenes: list[Scene], log: _Log) -> dict[int, str]:
    """Return the boxes in another layout, with reasons, if many."""
    entries = [annotation for _, annotation in log.usable]
    image_sizes = [(scene.width, scene.height) for scene in scenes for _ in scene.boxes]
    return contradictions(
        np.array([entry["bbox"] for entry in entries], dtype=np.float64).reshape(-1, 4),
        np.array([_extent(entry.get("segmentation")) for entry in entries]).reshape(-1, 4),
        np.array(image_sizes, dtype=np.float64).reshape(-1, 2),
        XYWH,
    )


def _extent(mask: object) -> list[float]:
    """Return left, top, right, bottom of outlines; NaN without outlines."""
    outlines = list(filter(is_outline, mask)) if isinstance(mask, list) else []
    if not outlines:
        return [math.nan] * 4
    x, y = ([outline[k::2] for outline in outlines] for k in (0, 1))
    return [min(map(min, x)), min(map(min, y)), max(map(max, x)), max(map(max, y))]


def _outlines(annotation: dict[str, Any]) -> tuple[NDArray[np.float64], ...]:
    """Return the outlines of an object; a crowd has none."""
    if annotation["iscrowd"]:
        return ()
    mask = annotation["segmentation"]
    return tuple(np.array(outline, dtype=np.float64) for outline in filter(is_outline, mask))


def _keypoints(annotations: list[dict[str, Any]]) -> NDArray[np.float64]:
    values = [annotation["keypoints"] for annotation in annotations]
    return np.array(values, dtype=np.float64).reshape(-1, NUM_KEYPOINTS, 3)


def _describe(key: str, kind: Kind, small: SmallVersion) -> DatasetInfo:
    return info(
        key,
        read=partial(read_coco, kind),
        load_annotations=partial(load_coco, kind),
        small=small,
        sources=(source("coco"),),
    )


def _small_sizes(classes: int) -> Sizes:
    train, test = SMALL_IMAGES["train2017"], SMALL_IMAGES["val2017"]
    counts = split_counts(train - SMALL_VAL, SMALL_VAL, test)
    return Sizes(classes=classes, counts=counts, drawn=True)


DATASETS = {
    "coco17": _describe(
        "coco17", "instances", SmallVersion(sizes=_small_sizes(len(CATEGORIES)), write=write_coco)
    ),
    "coco17_keypoints": _describe(
        "coco17_keypoints",
        "person_keypoints",
        SmallVersion(sizes=_small_sizes(1), needs=("coco17",)),
    ),
}
