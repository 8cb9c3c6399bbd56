"""Splits of detection datasets: images with objects, and faults in the annotations."""

import copy
import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.images import ImageFiles, ImageSplit


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """One image and its m objects, in px of the original image.

    Boxes are (left, top, right, bottom). Objects `aside` are COCO's crowds or VOC's difficult
    objects: a detector is not penalized for missing them. Training skips crowds, and treats
    difficult objects like any other.
    """

    name: str
    """Path of the file in the data folder."""
    image_id: int | str
    """COCO: number; VOC: name."""
    width: int
    height: int
    boxes: NDArray[np.float64]
    """(m, 4)."""
    classes: NDArray[np.int64]
    """(m,), from 0."""
    aside: NDArray[np.bool_]
    """(m,): crowd (COCO) or difficult (VOC)."""
    polygons: tuple[tuple[NDArray[np.float64], ...], ...] | None = None
    """Outlines x, y, x, y, ... of each object, empty for crowds.

    None: not published.
    """
    keypoints: NDArray[np.float64] | None = None
    """(m, 17, 3): x, y as published; 0 not labeled, 1 hidden, 2 visible."""

    def fingerprint_fields(self) -> Iterator[bytes]:
        """Yield the fields of the image as bytes, for the fingerprint."""
        yield f"{self.image_id} {self.width} {self.height} {len(self.boxes)}".encode()
        for values in (self.boxes, self.classes, self.aside, self.keypoints):
            yield b"" if values is None else values.tobytes()
        for outlines in self.polygons or ():
            yield b"%d" % len(outlines)
            yield from (outline.tobytes() for outline in outlines)


def without_objects(scenes: Iterable[Scene], dropped: Collection[int]) -> list[Scene]:
    """Return the scenes without some objects, given by indices across all scenes."""
    kept_scenes, start = [], 0
    for scene in scenes:
        is_kept = [start + k not in dropped for k in range(len(scene.boxes))]
        start += len(is_kept)
        if not all(is_kept):
            polygons, keypoints = scene.polygons, scene.keypoints
            scene = replace(
                scene,
                boxes=scene.boxes[is_kept],
                classes=scene.classes[is_kept],
                aside=scene.aside[is_kept],
                polygons=None if polygons is None else tuple(compress(polygons, is_kept)),
                keypoints=None if keypoints is None else keypoints[is_kept],
            )
        kept_scenes.append(scene)
    return kept_scenes


@dataclass(frozen=True, kw_only=True, eq=False)
class SceneArrays:
    """n images with M objects, o outlines and c coordinates in total.

    Each `..._ends` holds end offsets: image i has the objects from `object_ends[i - 1]` to
    `object_ends[i]` (exclusive). Outlines and keypoints that are not published have no rows.
    """

    names: NDArray[np.bytes_]
    """(n,): UTF-8."""
    image_ids: NDArray[np.bytes_]
    """Ids (n,) as JSON, since they may be names or numbers."""
    sizes: NDArray[np.int64]
    """(n, 2): width and height in px."""
    object_ends: NDArray[np.int64]
    """(n,)."""
    boxes: NDArray[np.float64]
    """(M, 4)."""
    classes: NDArray[np.int64]
    """(M,)."""
    aside: NDArray[np.bool_]
    """(M,)."""
    outline_ends: NDArray[np.int64]
    """(M,) or (0,)."""
    coordinate_ends: NDArray[np.int64]
    """(o,)."""
    coordinates: NDArray[np.float64]
    """(c,)."""
    keypoints: NDArray[np.float64]
    """(M, 17, 3) or (0, 17, 3)."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def image_of_object(self) -> NDArray[np.int64]:
        """Index (M,) of each object's image."""
        return np.repeat(np.arange(len(self)), np.diff(self.object_ends, prepend=0))

    def scene(self, i: int) -> Scene:
        """Return one image with its objects, as views of these arrays."""
        first, end = _start(self.object_ends, i), int(self.object_ends[i])
        width, height = self.sizes[i].tolist()
        return Scene(
            name=str(self.names[i], "utf-8"),
            image_id=json.loads(self.image_ids[i]),
            width=width,
            height=height,
            boxes=self.boxes[first:end],
            classes=self.classes[first:end],
            aside=self.aside[first:end],
            polygons=self._polygons(first, end) if len(self.outline_ends) else None,
            keypoints=self.keypoints[first:end] if len(self.keypoints) else None,
        )

    def _polygons(self, first: int, end: int) -> tuple[tuple[NDArray[np.float64], ...], ...]:
        return tuple(
            tuple(
                self.coordinates[_start(self.coordinate_ends, k) : self.coordinate_ends[k]]
                for k in range(_start(self.outline_ends, j), self.outline_ends[j])
            )
            for j in range(first, end)
        )


def _start(ends: NDArray[np.int64], i: int) -> int:
    """Return the offset of the first item of group i."""
    return int(ends[i - 1]) if i else 0


def pack_scenes(scenes: Iterable[Scene]) -> SceneArrays:
    """Return the arrays of scenes.

    Either all scenes have outlines or none has; the same holds for keypoints.
    """
    scenes = list(scenes)
    shapes = [outlines for scene in scenes for outlines in scene.polygons or ()]
    outlines = [outline for shape in shapes for outline in shape]
    keypoints = [s.keypoints for s in scenes if s.keypoints is not None and len(s.boxes)]
    return SceneArrays(
        # numpy strips trailing zero bytes from S strings; file names and JSON have none
        names=np.array([scene.name.encode() for scene in scenes], np.bytes_),
        image_ids=np.array([json.dumps(scene.image_id).encode() for scene in scenes], np.bytes_),
        sizes=np.array([(s.width, s.height) for s in scenes], np.int64).reshape(-1, 2),
        object_ends=_ends([scene.boxes for scene in scenes]),
        boxes=np.concatenate([np.zeros((0, 4)), *(scene.boxes for scene in scenes)]),
        classes=np.concatenate([np.zeros(0, np.int64), *(scene.classes for scene in scenes)]),
        aside=np.concatenate([np.zeros(0, np.bool_), *(scene.aside for scene in scenes)]),
        outline_ends=_ends(shapes),
        coordinate_ends=_ends(outlines),
        coordinates=np.concatenate([np.zeros(0), *outlines]),
        keypoints=np.concatenate(keypoints or [np.zeros((0, 17, 3))]),
    )


def _ends(groups: Sequence[Sequence[object] | NDArray[np.float64]]) -> NDArray[np.int64]:
    return np.cumsum([len(group) for group in groups], dtype=np.int64)


ARRAY_NAMES = tuple(field.name for field in fields(SceneArrays))


class Scenes(ImageSplit):
    """One split of a detection dataset."""

    source: ImageFiles

    def __init__(
        self,
        folder: Path,
        scenes: Iterable[Scene] | SceneArrays,
        class_names: Sequence[str],
        *,
        category_ids: Sequence[int] = (),
        annotations: Path | None = None,
        faulty: Collection[int] = (),
        faults: Sequence[str] = (),
        lost: Sequence[str] = (),
    ) -> None:
        """Pack scenes; arrays are shared, not copied."""
        self.arrays = scenes if isinstance(scenes, SceneArrays) else pack_scenes(scenes)
        """Images and objects of the published split; subsets share them."""
        self.class_names = tuple(class_names)
        self.category_ids = tuple(category_ids)
        """COCO's category id of each class."""
        self.annotations = annotations
        """COCO's JSON file of the published split.

        It is train2017 for drawn train and val splits.
        """
        self.faulty = frozenset(faulty)
        """Indices of broken annotations in that file; they are not evaluated either."""
        self.faults = tuple(faults)
        """One line per broken annotation of the published split; these are skipped."""
        self.lost = tuple(lost)
        """One line per skipped image of the published split.

        Its annotation file is unusable, or gives no image size.
        """
        self._take(folder, np.arange(len(self.arrays)))

    def _take(self, folder: Path, order: NDArray[np.int64]) -> None:
        self.order = order
        """Indices (n,) of the images of this split in the arrays."""
        self.source = ImageFiles(folder, self.arrays.names[order])
        self.sizes = self.arrays.sizes[order]
        """(n, 2): width and height in px."""
        self.wide = self.sizes[:, 0] > self.sizes[:, 1]
        """Whether images (n,) are wide, for batches of one orientation."""

    def __iter__(self) -> Iterator[Scene]:
        return (self.scene(i) for i in range(len(self)))

    @property
    def aside_are_crowds(self) -> bool:
        """Return whether `aside` objects are crowds (COCO), not difficult (VOC)."""
        return bool(self.category_ids)

    def scene(self, i: int) -> Scene:
        """Return one image with its objects."""
        return self.arrays.scene(int(self.order[i]))

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "Scenes":
        """Return the images with these indices, in this order."""
        subset = copy.copy(self)
        vars(subset).pop("fingerprint", None)
        subset._take(self.source.folder, self.order[np.asarray(indices, dtype=np.int64)])
        return subset

    def with_classes(self, class_names: tuple[str, ...]) -> "Scenes":
        """Return the same objects with the same classes in another order."""
        if class_names == self.class_names:
            return self
        order = np.array([self.class_names.index(name) for name in class_names])
        scenes = copy.copy(self)
        vars(scenes).pop("fingerprint", None)
        scenes.class_names = class_names
        scenes.category_ids = tuple(self.category_ids[label] for label in order)
        scenes.arrays = replace(self.arrays, classes=np.argsort(order)[self.arrays.classes])
        return scenes

    def objects_per_class(self) -> NDArray[np.int64]:
        """Return the number of objects per class (L,), without `aside` objects."""
        arrays = self.arrays
        repetitions = np.bincount(self.order, minlength=len(arrays))[arrays.image_of_object]
        counted = np.repeat(arrays.classes, repetitions * ~arrays.aside)
        return np.bincount(counted, minlength=len(self.class_names))

    @cached_property
    def fingerprint(self) -> str:
        """Return 16 hex digits that identify classes, images and annotations.

        They are a hash of class names, file names and sizes, and annotations.
        """
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        digest.update(repr(self.category_ids).encode())
        for i, scene in enumerate(self):
            digest.update(scene.name.encode() + b"\0" + self.source.content(i) + b"\n")
            for field in scene.fingerprint_fields():
                digest.update(field)
        return digest.hexdigest()[:16]


def name_differences(names: Sequence[str], expected: Sequence[str]) -> str:
    """Return the first five added and missing class names of a split."""
    added, missing = (
        [repr(name) for name in first if name not in second]
        for first, second in ((names, expected), (expected, names))
    )
    texts = [
        f"{verb} {', '.join(diff[:5])}" + (f" and {len(diff) - 5} more" if len(diff) > 5 else "")
        for verb, diff in (("it adds", added), ("it lacks", missing))
        if diff
    ]
    return "; ".join(texts) or "it has them in another order"


def usable_for_training(
    scenes: Scenes, finds: Literal["boxes", "masks", "keypoints"]
) -> NDArray[np.int64]:
    """Return the indices of the training images, selected as in detectron2.

    Images without objects and images with only crowds are dropped. For keypoints, images without
    a labeled keypoint are dropped, too. VOC's difficult objects count like any other. COCO has
    118,287 training images, of which 117,266 are used for boxes and masks.
    """
    arrays = scenes.arrays
    # creating a Scene per image would take ten seconds for COCO
    counts = ~arrays.aside if scenes.aside_are_crowds else np.ones_like(arrays.aside)
    usable = np.isin(scenes.order, arrays.image_of_object[counts])
    if finds == "keypoints":
        points = arrays.keypoints if len(arrays.keypoints) else np.zeros((len(counts), 17, 3))
        labeled = (points[..., 2] > 0).any(axis=1)
        usable &= np.isin(scenes.order, arrays.image_of_object[labeled])
    return np.flatnonzero(usable)


def box_fault(box: object, width: int, height: int) -> str:
    """Return the fault of a box, "" if valid.

    box: left, top, width, height.

    A box without area is valid. A box that crosses the image border is also valid: training clips
    it, like detectron2.
    """
    if not isinstance(box, list) or len(box) != 4 or not all(is_number(side) for side in box):
        return f"box {box} is not four finite numbers"
    x, y, w, h = box
    if w < 0 or h < 0:
        return f"box {box} has a negative size"
    if x >= width or y >= height or x + w <= 0 or y + h <= 0:
        return f"box {box} lies outside the image of {width} x {height} px"
    return ""


def is_flat(box: Sequence[float]) -> bool:
    """Return whether a box (left, top, width, height) has no area.

    A few of COCO's published training objects have none; detectron2 also skips them.
    """
    return box[2] == 0 or box[3] == 0


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value from a file is a finite number."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
