"""COCO 2017, Lin et al., ECCV 2014, arXiv:1405.0312: objects with outlines, persons with keypoints.

Annotations are understood as detectron2 understands them, so that both engines learn from the same
objects: images are in the order of their numbers, classes in the order of theirs, an outline has
three points or more, and an object without one is left out. The classes of val2017 are matched with
those of train2017 by name, in case its numbers are others. trainval is train2017, test is val2017
(the papers' test set); val is a seeded draw from train2017, to choose learning rates on.
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
    """Return why an annotation cannot be used, empty if it can.

    Some values are only needed by pycocotools, which runs after the training.
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
    why = box_fault(annotation.get("bbox"), image["width"], image["height"])
    # persons with keypoints have the outlines of the other file, and are left out with them
    if not why and (kind == "instances" or mask):
        why = _mask_fault(mask, bool(crowd), [image["height"], image["width"]])
    if not why and kind == "person_keypoints":
        why = _keypoint_fault(annotation)
    return why


def _mask_fault(mask: object, crowd: bool, size: list[int]) -> str:
    """Return what is wrong with outlines, or with the run lengths of a crowd; size: H, W."""
    if isinstance(mask, dict):
        if not crowd:
            return "its mask is run lengths, which only crowds have; outlines are needed"
        if mask.get("size") != size:
            return f"its mask is {mask.get('size')}, the image {size} (height, width)"
        counts = mask.get("counts")
        if isinstance(counts, list) and all(isinstance(n, int) and n >= 0 for n in counts):
            return "" if sum(counts) == math.prod(size) else f"its run lengths do not cover {size}"
        return "" if isinstance(counts, str) else f"its run lengths are {counts}, no whole numbers"
    outlines = list(filter(is_outline, mask)) if isinstance(mask, list) else []
    if not outlines:
        return "it has no outline of three points or more"
    if not all(map(_is_finite, outlines)):
        return "its outline has a value that is not a finite number"
    return ""


def is_outline(outline: object) -> bool:
    """Return whether one part of a mask has three points or more."""
    return isinstance(outline, list) and len(outline) >= 6 and len(outline) % 2 == 0


def _is_finite(values: list[Any]) -> bool:
    try:
        return math.isfinite(sum(values))
    except (TypeError, OverflowError):
        return False


def _keypoint_fault(annotation: dict[str, Any]) -> str:
    labeled, values = annotation.get("num_keypoints"), annotation.get("keypoints")
    if not isinstance(labeled, int):
        return f"its num_keypoints is {labeled}, not a whole number"
    if not isinstance(values, list) or len(values) != 3 * NUM_KEYPOINTS or not _is_finite(values):
        return f"its keypoints are not {3 * NUM_KEYPOINTS} finite numbers"
    if not {0, 1, 2}.issuperset(values[2::3]):
        return f"its keypoints have the marks {sorted(set(values[2::3]))}, not 0, 1 or 2"
    return ""


FOLDER = "coco"
UNPACK = "unpack annotations_trainval2017.zip again"
SMALL_VAL = 12
"""Images of the small set that are held out as val."""
Numbered = tuple[int, dict[str, Any]]
"""The number of an image, or the index of an annotation in the list of its file, and its entry."""
State = tuple[int, int, int]
"""Size, modification and change time of a file."""

_opened: dict[Path, tuple[State, Scenes]] = {}
"""The annotation files that this process has opened: a run opens them repeatedly."""


def read_coco(kind: Kind, data: Path, split: str, sizes: Sizes) -> Scenes:
    """Read coco/annotations/KIND_{train,val}2017.json; images in coco/{train,val}2017."""
    train = _file(kind, data, "train2017")
    if split != "test":
        return uniform_split(_open(train), split, sizes)
    test = _open(_file(kind, data, "val2017"))
    if not train.is_file():  # there is nothing to learn, either
        return test
    classes = _open(train).class_names
    if set(test.class_names) != set(classes):
        raise DataError(
            f"{test.annotations}: its categories are not those of {train.name}: "
            f"{name_differences(test.class_names, classes)}; both files need the same names"
        )
    return test.with_classes(classes)


def _open(file: Path) -> Scenes:
    """Return the scenes of an annotation file, which this process parses or loads once."""
    state = _state(file)
    if not _is_opened(file):
        _opened[file] = state, _parse_scenes(file, read_bytes(file))
    # a copy, without the cached fingerprint: image files may change while annotations do not
    return copy.copy(_opened[file][1])


def load_coco(kind: Kind, data: Path, cache: Path, parse: bool) -> None:
    """Load coco/annotations/KIND_{train,val}2017.json from the cache, or parse and store them."""
    for part in ("train2017", "val2017"):
        file = _file(kind, data, part)
        if file.is_file() and (parse or not _is_opened(file)):
            state = _state(file)
            read = read_once(file, cache, _parse_scenes) if parse else stored_scenes(file, cache)
            if read is not None:
                _opened[file] = state, read


def _file(kind: Kind, data: Path, part: str) -> Path:
    return data / FOLDER / "annotations" / f"{kind}_{part}.json"


def _state(file: Path) -> State:
    status = file.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_opened(file: Path) -> bool:
    return file in _opened and _opened[file][0] == _state(file)


def _parse_scenes(file: Path, content: bytes) -> Scenes:
    """Return the scenes of an annotation file, in half a minute if it is large."""
    data = file.parents[2]
    kind, _, part = file.stem.rpartition("_")
    lists = _parse(file, content)
    names = _categories(file, lists["categories"], kind)
    classes = {number: label for label, number in enumerate(names)}
    log = _Log(file=file.relative_to(data).as_posix(), kind=kind, classes=classes)
    images = _images(file, lists["images"], log)
    objects = _by_image(lists["annotations"], images, log)
    scenes = [
        _scene(f"{FOLDER}/{part}", image, objects.pop(number), log)
        for number, image in images
        if _has_size(image)
    ]
    wrong = _wrong_boxes(scenes, log)
    for position, why in wrong.items():
        log.add_broken(log.usable[position], why)
    return Scenes(
        data,
        without_objects(scenes, wrong) if wrong else scenes,
        list(names.values()),
        category_ids=list(names),
        annotations=file,
        faulty=log.faulty,
        faults=log.faults,
        lost=log.lost,
    )


@dataclass(frozen=True, kw_only=True)
class _Log:
    """Broken annotations of one annotation file, collected while its scenes are read."""

    file: str
    """Name of the file, for messages."""
    kind: str
    classes: Mapping[int, int]
    """Class of each category number."""
    faulty: set[int] = field(default_factory=set)
    """Indices of the broken annotations."""
    faults: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """A line for each image that is left out."""

    usable: list[Numbered] = field(default_factory=list)
    """The usable annotations, in the order of the scenes' objects."""

    def add_broken(self, numbered: Numbered, why: str) -> None:
        """Add a broken annotation and the reason."""
        index, annotation = numbered
        image, number = annotation.get("image_id"), annotation.get("id")
        self.faulty.add(index)
        self.faults.append(f"{self.file}: image {image}, annotation {number}: {why}")


def _parse(file: Path, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DataError(f"{file} is no JSON ({error}); {UNPACK}") from error
    for key in ("images", "annotations", "categories"):
        entries = content.get(key) if isinstance(content, dict) else None
        whole = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
        if not whole or not entries:
            raise DataError(f"{file} is not COCO's: it holds no {key}; {UNPACK}")
    return dict(content)


def _categories(file: Path, entries: list[dict[str, Any]], kind: str) -> dict[int, str]:
    """Return the name of each category number, in the order of the numbers.

    DataError if a number or name stands twice, or if keypoints are not COCO's, whose order flips
    and the metric's deviations follow.
    """
    names = {
        entry["id"]: entry["name"]
        for entry in entries
        if isinstance(entry.get("id"), int) and isinstance(entry.get("name"), str)
    }
    if len(names) < len(entries):
        raise DataError(f"{file}: categories without a name or a number of their own; {UNPACK}")
    if twice := [name for name, count in Counter(names.values()).items() if count > 1]:
        raise DataError(f"{file}: several categories have the name {twice[0]!r}; name them apart")
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
    """Return number and entry of each image, in the order of the numbers."""
    images: dict[int, dict[str, Any]] = {}
    for entry in entries:
        numbers = [entry.get(key) for key in ("id", "width", "height")]
        if not all(isinstance(n, int) for n in numbers) or "file_name" not in entry:
            raise DataError(
                f"{file}: an image without a number, width, height or file_name: {entry}; {UNPACK}"
            )
        if entry["id"] in images:
            log.lost.append(f"{log.file}: image {entry['id']} is listed more than once")
            continue
        images[entry["id"]] = entry
        if not _has_size(entry):
            size = f"{entry['width']} x {entry['height']} px"
            log.lost.append(f"{log.file}: image {entry['id']} is said to have {size}")
    return sorted(images.items())


def _has_size(image: Mapping[str, Any]) -> bool:
    return bool(image["width"] > 0 and image["height"] > 0)


def _by_image(
    annotations: list[dict[str, Any]], images: list[Numbered], log: _Log
) -> dict[int, list[Numbered]]:
    """Return the annotations of each image, in the order of the file."""
    objects: dict[int, list[Numbered]] = {number: [] for number, _ in images}
    seen: set[int] = set()
    for numbered in enumerate(annotations):
        image, number = numbered[1].get("image_id"), numbered[1].get("id")
        if not isinstance(number, int):
            log.add_broken(numbered, "its number is no whole number")
            continue
        if number in seen:
            log.add_broken(numbered, "the number is used more than once")
        elif not isinstance(image, int) or image not in objects:
            log.add_broken(numbered, "the image is not listed")
        else:
            objects[image].append(numbered)
        seen.add(number)
    return objects


def _scene(folder: str, image: dict[str, Any], annotations: list[Numbered], log: _Log) -> Scene:
    """Return an image with its usable annotations; add the others to the log."""
    kept = []
    for numbered in annotations:
        annotation = numbered[1]
        why = annotation_fault(annotation, image, log.kind, log.classes)
        if why:
            log.add_broken(numbered, why)
        elif not is_flat(annotation["bbox"]):
            kept.append(annotation)
            log.usable.append(numbered)
    boxes = np.array([entry["bbox"] for entry in kept], dtype=np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]  # COCO's left, top, width, height to corners
    classes = [log.classes[entry["category_id"]] for entry in kept]
    return Scene(
        name=f"{folder}/{image['file_name']}",
        image_id=image["id"],
        width=image["width"],
        height=image["height"],
        boxes=boxes,
        classes=np.array(classes, dtype=np.int64),
        aside=np.array([bool(entry["iscrowd"]) for entry in kept], dtype=np.bool_),
        polygons=tuple(map(_outlines, kept)) if log.kind == "instances" else None,
        keypoints=_keypoints(kept) if log.kind == "person_keypoints" else None,
    )


def _wrong_boxes(scenes: list[Scene], log: _Log) -> dict[int, str]:
    """Return the objects whose boxes are not left, top, width, height, if they are many."""
    entries = [annotation for _, annotation in log.usable]
    image_sizes = [(scene.width, scene.height) for scene in scenes for _ in scene.boxes]
    return contradictions(
        np.array([entry["bbox"] for entry in entries], dtype=np.float64).reshape(-1, 4),
        np.array([_extent(entry.get("segmentation")) for entry in entries]).reshape(-1, 4),
        np.array(image_sizes, dtype=np.float64).reshape(-1, 2),
        XYWH,
    )


def _extent(mask: object) -> list[float]:
    """Return left, top, right, bottom of outlines; NaN for run lengths and without any."""
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
