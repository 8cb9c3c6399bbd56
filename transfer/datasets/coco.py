"""COCO 2017, Lin et al., ECCV 2014, arXiv:1405.0312: objects with outlines, persons with keypoints.

Annotations are understood as detectron2 understands them, so that both engines learn from the same
objects: images in the order of their numbers, classes in the order of theirs, an outline has three
points or more, and an object without one is left out. trainval is train2017, test is val2017 (the
papers' test); val is a seeded draw from train2017, to choose learning rates on.
"""

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError
from transfer.datasets.scenes import Scene, Scenes, box_fault, box_note, is_flat, is_number
from transfer.datasets.splits import drawn_split

FOLDER = "coco"
NUM_KEYPOINTS = 17
LISTS = ("images", "annotations", "categories")
UNPACK = "unpack annotations_trainval2017.zip again"
Kind = Literal["instances", "person_keypoints"]
Placed = tuple[int, dict[str, Any]]
"""An annotation, after its place in the list of its file."""


def read_coco17(data: Path, split: str, sizes: Sizes) -> Scenes:
    """Reads coco/annotations/instances_{train,val}2017.json; images in coco/{train,val}2017."""
    return _split(data, split, sizes, "instances")


def read_coco17_keypoints(data: Path, split: str, sizes: Sizes) -> Scenes:
    """Reads coco/annotations/person_keypoints_{train,val}2017.json."""
    return _split(data, split, sizes, "person_keypoints")


def _split(data: Path, split: str, sizes: Sizes, kind: Kind) -> Scenes:
    published = "val2017" if split == "test" else "train2017"
    file = data / FOLDER / "annotations" / f"{kind}_{published}.json"
    state = file.stat()
    kept = _read(data, kind, published, state.st_size, state.st_mtime_ns)
    # a copy: its fingerprint looks at the image files, which may change while annotations do not
    scenes = copy.copy(kept)
    return scenes if split == "test" else drawn_split(scenes, split, sizes)


@lru_cache(maxsize=4)
def _read(data: Path, kind: Kind, published: str, size: int, time_ns: int) -> Scenes:
    """Kept: half a minute is needed for the large file, which a run opens several times."""
    file = data / FOLDER / "annotations" / f"{kind}_{published}.json"
    content = _parsed(file)
    names = _categories(file, content["categories"])
    found = _Found(where=file.relative_to(data).as_posix(), kind=kind, classes=_places(names))
    images = _images(file, content["images"], found)
    objects = _by_image(content["annotations"], images, found)
    folder = f"{FOLDER}/{published}"
    scenes = [
        _scene(folder, image, objects.pop(number), found)
        for number, image in images
        if _has_size(image)
    ]
    return Scenes(
        data,
        scenes,
        list(names.values()),
        category_ids=list(names),
        annotations=file,
        faulty=found.faulty,
        faults=found.faults,
        notes=found.notes,
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What was seen in one annotation file beside its scenes."""

    where: str
    """The file, for messages."""
    kind: Kind
    classes: Mapping[int, int]
    """Class of each category number."""
    faulty: set[int] = field(default_factory=set)
    """Places of the broken annotations."""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def broken(self, placed: Placed, why: str) -> None:
        """Puts an annotation down."""
        place, annotation = placed
        self.faulty.add(place)
        self.faults.append(self.line(annotation, why))

    def line(self, annotation: Mapping[str, Any], why: str) -> str:
        """About an annotation."""
        image, number = annotation.get("image_id"), annotation.get("id")
        return f"{self.where}: image {image}, annotation {number}: {why}"


def _parsed(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataError(f"{file} is no JSON ({error}); {UNPACK}") from error
    missing = [
        key
        for key in LISTS
        if not isinstance(content, dict)
        or not isinstance(content.get(key), list)
        or not all(isinstance(entry, dict) for entry in content[key])
    ]
    if missing:
        raise DataError(f"{file} is not COCO's: it holds no list of {missing}; {UNPACK}")
    empty = [key for key in LISTS if not content[key]]
    if empty:
        raise DataError(f"{file} holds no {' and no '.join(empty)}; {UNPACK}")
    return dict(content)


def _categories(file: Path, entries: list[dict[str, Any]]) -> dict[int, str]:
    """Name of each category number, in the order of the numbers."""
    names = {
        entry["id"]: entry["name"]
        for entry in entries
        if isinstance(entry.get("id"), int) and isinstance(entry.get("name"), str)
    }
    if len(names) < len(entries):
        raise DataError(f"{file}: categories without a name or a number of their own; {UNPACK}")
    return dict(sorted(names.items()))


def _places(names: Mapping[int, str]) -> dict[int, int]:
    return {number: place for place, number in enumerate(names)}


def _images(
    file: Path, entries: list[dict[str, Any]], found: _Found
) -> list[tuple[int, dict[str, Any]]]:
    """Number and entry of each image, in the order of the numbers."""
    images: dict[int, dict[str, Any]] = {}
    for entry in entries:
        numbers = [entry.get(key) for key in ("id", "width", "height")]
        if not all(isinstance(n, int) for n in numbers) or "file_name" not in entry:
            raise DataError(
                f"{file}: an image without a number, width, height or file_name: {entry}; {UNPACK}"
            )
        if entry["id"] in images:
            found.faults.append(f"{found.where}: image {entry['id']} is listed more than once")
        else:
            images[entry["id"]] = entry
            if not _has_size(entry):
                size = f"{entry['width']} x {entry['height']} px"
                found.faults.append(f"{found.where}: image {entry['id']} is said to have {size}")
    return sorted(images.items())


def _has_size(image: Mapping[str, Any]) -> bool:
    return bool(image["width"] > 0 and image["height"] > 0)


def _by_image(
    annotations: list[dict[str, Any]], images: list[tuple[int, dict[str, Any]]], found: _Found
) -> dict[int, list[Placed]]:
    """Annotations of each image, in the order of the file."""
    objects: dict[int, list[Placed]] = {number: [] for number, _ in images}
    seen: set[int] = set()
    for placed in enumerate(annotations):
        image, number = placed[1].get("image_id"), placed[1].get("id")
        if not isinstance(number, int):
            found.broken(placed, "its number is no whole number")
            continue
        if number in seen:
            found.broken(placed, "the number is used more than once")
        elif not isinstance(image, int) or image not in objects:
            found.broken(placed, "the image is not listed")
        else:
            objects[image].append(placed)
        seen.add(number)
    return objects


def _scene(folder: str, image: dict[str, Any], annotations: list[Placed], found: _Found) -> Scene:
    """The image with its sound annotations; what is wrong with the others is put down."""
    kept = []
    for placed in annotations:
        annotation = placed[1]
        why = _fault(annotation, image, found)
        if why:
            found.broken(placed, why)
            continue
        note = box_note(annotation["bbox"], image["width"], image["height"])
        if note:
            found.notes.append(found.line(annotation, note))
        if not is_flat(annotation["bbox"]):
            kept.append(annotation)
    boxes = np.array([entry["bbox"] for entry in kept], dtype=np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    classes = [found.classes[entry["category_id"]] for entry in kept]
    return Scene(
        name=f"{folder}/{image['file_name']}",
        image_id=image["id"],
        width=image["width"],
        height=image["height"],
        boxes=boxes,
        classes=np.array(classes, dtype=np.int64),
        aside=np.array([bool(entry["iscrowd"]) for entry in kept], dtype=np.bool_),
        polygons=tuple(map(_outlines, kept)) if found.kind == "instances" else None,
        keypoints=_keypoints(kept) if found.kind == "person_keypoints" else None,
    )


def _fault(annotation: dict[str, Any], image: dict[str, Any], found: _Found) -> str:
    """Why an annotation cannot be used, empty if it can."""
    category = annotation.get("category_id")
    if not isinstance(category, int) or category not in found.classes:
        return f"category {category} is not among the categories"
    width, height = image["width"], image["height"]
    why = _value_fault(annotation, found.kind) or box_fault(annotation.get("bbox"), width, height)
    # persons with keypoints have the outlines of the other file, and are left out with them
    if not why and (found.kind == "instances" or annotation.get("segmentation")):
        why = _mask_fault(annotation, width, height)
    if not why and found.kind == "person_keypoints":
        why = _keypoint_fault(annotation.get("keypoints"))
    return why


def _value_fault(annotation: dict[str, Any], kind: Kind) -> str:
    """Of what pycocotools needs, but only after the training."""
    crowd, area, labeled = (annotation.get(key) for key in ("iscrowd", "area", "num_keypoints"))
    if crowd not in (0, 1):
        return f"its iscrowd is {crowd}, not 0 or 1"
    if not is_number(area) or area < 0:
        return f"its area is {area}, not a finite number from 0"
    if kind == "person_keypoints" and not isinstance(labeled, int):
        return f"its num_keypoints is {labeled}, not a whole number"
    return ""


def _mask_fault(annotation: dict[str, Any], width: int, height: int) -> str:
    mask = annotation.get("segmentation")
    if isinstance(mask, dict):
        if not annotation["iscrowd"]:
            return "its mask is run lengths, which only crowds have; outlines are needed"
        if mask.get("size") != [height, width]:
            return f"its mask is {mask.get('size')}, the image {[height, width]} (height, width)"
        return _run_length_fault(mask.get("counts"), width * height)
    if not isinstance(mask, list) or not any(map(is_outline, mask)):
        return "it has no outline of three points or more"
    if not all(_is_finite(outline) for outline in mask if is_outline(outline)):
        return "its outline holds what is no finite number"
    return ""


def _run_length_fault(counts: object, num_px: int) -> str:
    if isinstance(counts, str):
        return ""
    if not isinstance(counts, list) or not all(isinstance(n, int) and n >= 0 for n in counts):
        return f"the run lengths of its mask are {counts}, neither text nor whole numbers"
    if sum(counts) != num_px:
        return f"the run lengths of its mask end after {sum(counts)} of {num_px} px"
    return ""


def is_outline(outline: object) -> bool:
    """Whether one part of a mask has three points or more."""
    return isinstance(outline, list) and len(outline) >= 6 and len(outline) % 2 == 0


def _is_finite(values: list[Any]) -> bool:
    try:
        return math.isfinite(sum(values))
    except (TypeError, OverflowError):
        return False


def _keypoint_fault(values: object) -> str:
    if not isinstance(values, list) or len(values) != 3 * NUM_KEYPOINTS:
        given = f"{len(values)} numbers" if isinstance(values, list) else f"{values}"
        return f"its keypoints are {given}, not {3 * NUM_KEYPOINTS} numbers"
    if not _is_finite(values):
        return "its keypoints hold what is no finite number"
    if not {0, 1, 2}.issuperset(values[2::3]):
        return f"its keypoints have the marks {sorted(set(values[2::3]))}, not 0, 1 or 2"
    return ""


def _outlines(annotation: dict[str, Any]) -> tuple[NDArray[np.float64], ...]:
    """Of an object; none of a crowd."""
    if annotation["iscrowd"]:
        return ()
    mask = annotation["segmentation"]
    return tuple(np.array(outline, dtype=np.float64) for outline in filter(is_outline, mask))


def _keypoints(annotations: list[dict[str, Any]]) -> NDArray[np.float64]:
    values = [annotation["keypoints"] for annotation in annotations]
    return np.array(values, dtype=np.float64).reshape(-1, NUM_KEYPOINTS, 3)
