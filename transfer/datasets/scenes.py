"""Images with objects, the content of detection sets, and what is broken in them."""

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

    Boxes are (left, top, right, bottom). Missing an `aside` object in a test is no error. In
    training, the crowds of COCO are left out; the difficult objects of VOC count like any other.
    """

    name: str
    """File below the data folder."""
    image_id: int | str
    """COCO's number, VOC's name."""
    width: int
    height: int
    boxes: NDArray[np.float64]
    """(m, 4)."""
    classes: NDArray[np.int64]
    """(m,), from 0."""
    aside: NDArray[np.bool_]
    """(m,): crowd (COCO) or difficult (VOC)."""
    polygons: tuple[tuple[NDArray[np.float64], ...], ...] | None = None
    """Outlines x, y, x, y, ... of each of the m objects; empty for crowds. None: not published."""
    keypoints: NDArray[np.float64] | None = None
    """(m, 17, 3): x, y as published, and 0 not labeled, 1 hidden, 2 visible."""

    def parts(self) -> Iterator[bytes]:
        """Yield all that is known about the image, for the fingerprint."""
        yield f"{self.image_id} {self.width} {self.height} {len(self.boxes)}".encode()
        for values in (self.boxes, self.classes, self.aside, self.keypoints):
            yield b"" if values is None else values.tobytes()
        for outlines in self.polygons or ():
            yield b"%d" % len(outlines)
            yield from (outline.tobytes() for outline in outlines)


def without_objects(scenes: Iterable[Scene], dropped: Collection[int]) -> list[Scene]:
    """Return the scenes without some objects, which are numbered across all scenes."""
    rest, start = [], 0
    for scene in scenes:
        keep = [start + k not in dropped for k in range(len(scene.boxes))]
        start += len(keep)
        if not all(keep):
            polygons, keypoints = scene.polygons, scene.keypoints
            scene = replace(
                scene,
                boxes=scene.boxes[keep],
                classes=scene.classes[keep],
                aside=scene.aside[keep],
                polygons=None if polygons is None else tuple(compress(polygons, keep)),
                keypoints=None if keypoints is None else keypoints[keep],
            )
        rest.append(scene)
    return rest


@dataclass(frozen=True, kw_only=True, eq=False)
class SceneArrays:
    """n images with M objects in total, which have o outlines of c coordinates in total.

    Each `..._ends` holds the position behind the last part of each whole, such as the object behind
    the last one of each image. Outlines and keypoints that are not published have no rows.
    """

    names: NDArray[np.bytes_]
    """(n,): UTF-8."""
    image_ids: NDArray[np.bytes_]
    """(n,): JSON, which has numbers of any size as well as names."""
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
        """Position (M,) of each object's image."""
        return np.repeat(np.arange(len(self)), np.diff(self.object_ends, prepend=0))

    def scene(self, i: int) -> Scene:
        """Return one image with its objects; its arrays are parts of these."""
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
    """Return where the parts of whole i begin."""
    return int(ends[i - 1]) if i else 0


def pack_scenes(scenes: Iterable[Scene]) -> SceneArrays:
    """Return the arrays of scenes; all or none of them have outlines, or keypoints."""
    scenes = list(scenes)
    shapes = [outlines for scene in scenes for outlines in scene.polygons or ()]
    outlines = [outline for parts in shapes for outline in parts]
    keypoints = [s.keypoints for s in scenes if s.keypoints is not None and len(s.boxes)]
    return SceneArrays(
        # numpy cuts zero bytes off the end of S strings; file names and JSON have none
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


def _ends(parts: Sequence[Sequence[object] | NDArray[np.float64]]) -> NDArray[np.int64]:
    return np.cumsum([len(part) for part in parts], dtype=np.int64)


ARRAY_NAMES = tuple(field.name for field in fields(SceneArrays))


class Scenes(ImageSplit):
    """One split of a detection set."""

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
        """Pack scenes, or refer to packed ones."""
        self.arrays = scenes if isinstance(scenes, SceneArrays) else pack_scenes(scenes)
        """Images and objects of the published split, which its parts share."""
        self.class_names = tuple(class_names)
        self.category_ids = tuple(category_ids)
        """COCO's number of each class."""
        self.annotations = annotations
        """COCO's JSON file of the published split; a drawn train and val have that of train2017."""
        self.faulty = frozenset(faulty)
        """Indices of broken annotations in the list of that file: they are not evaluated either."""
        self.faults = tuple(faults)
        """Broken annotations of the published split, which were left out, one line each."""
        self.lost = tuple(lost)
        """Images of the published split that were left out: they have no usable annotation file or
        no size. One line each."""
        self._take(folder, np.arange(len(self.arrays)))

    def _take(self, folder: Path, order: NDArray[np.int64]) -> None:
        self.order = order
        """Positions (n,) of the images of this split in the arrays."""
        self.source = ImageFiles(folder, self.arrays.names[order])
        self.sizes = self.arrays.sizes[order]
        """(n, 2): width and height in px."""
        self.wide = self.sizes[:, 0] > self.sizes[:, 1]
        """Whether the image is wider than high (n,), for batches of one orientation."""

    def __iter__(self) -> Iterator[Scene]:
        return (self.scene(i) for i in range(len(self)))

    @property
    def aside_are_crowds(self) -> bool:
        """Return whether `aside` objects are crowds, as in COCO, or difficult, as in VOC."""
        return bool(self.category_ids)

    def scene(self, i: int) -> Scene:
        """Return one image with its objects."""
        return self.arrays.scene(int(self.order[i]))

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "Scenes":
        """Return the images at these positions, in this order."""
        part = copy.copy(self)
        vars(part).pop("fingerprint", None)
        part._take(self.source.folder, self.order[np.asarray(indices, dtype=np.int64)])
        return part

    def with_classes(self, class_names: tuple[str, ...]) -> "Scenes":
        """Return the same objects with the same classes in another order."""
        if class_names == self.class_names:
            return self
        order = np.array([self.class_names.index(name) for name in class_names])
        part = copy.copy(self)
        vars(part).pop("fingerprint", None)
        part.class_names = class_names
        part.category_ids = tuple(self.category_ids[label] for label in order)
        part.arrays = replace(self.arrays, classes=np.argsort(order)[self.arrays.classes])
        return part

    def objects_per_class(self) -> NDArray[np.int64]:
        """Return the number of objects of each class (L,), those aside not counted."""
        arrays = self.arrays
        times = np.bincount(self.order, minlength=len(arrays))[arrays.image_of_object]
        counted = np.repeat(arrays.classes, times * ~arrays.aside)
        return np.bincount(counted, minlength=len(self.class_names))

    @cached_property
    def fingerprint(self) -> str:
        """Return 16 hex digits over class names, file names and sizes, and annotations."""
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        digest.update(repr(self.category_ids).encode())
        for i, scene in enumerate(self):
            digest.update(scene.name.encode() + b"\0" + self.source.content(i) + b"\n")
            for part in scene.parts():
                digest.update(part)
        return digest.hexdigest()[:16]


def name_differences(names: Sequence[str], expected: Sequence[str]) -> str:
    """Return in which class names two splits differ, the first five each."""
    added, missing = (
        [repr(name) for name in some if name not in others]
        for some, others in ((names, expected), (expected, names))
    )
    texts = [
        f"{what} {', '.join(some[:5])}" + (f" and {len(some) - 5} more" if len(some) > 5 else "")
        for what, some in (("it adds", added), ("it lacks", missing))
        if some
    ]
    return "; ".join(texts) or "it has them in another order"


def usable_for_training(
    scenes: Scenes, finds: Literal["boxes", "masks", "keypoints"]
) -> NDArray[np.int64]:
    """Return the positions of the images to train on, the same that detectron2 chooses.

    Images without objects and images with only crowds are dropped, and, for keypoints, images
    without a labeled keypoint. Difficult objects of VOC count like any other. Of COCO's 118,287
    training images 117,266 are left for boxes and masks.
    """
    arrays = scenes.arrays
    # without a Scene per image, which would take ten seconds for COCO
    kept = ~arrays.aside if scenes.aside_are_crowds else np.ones_like(arrays.aside)
    usable = np.isin(scenes.order, arrays.image_of_object[kept])
    if finds == "keypoints":
        points = arrays.keypoints if len(arrays.keypoints) else np.zeros((len(kept), 17, 3))
        labeled = (points[..., 2] > 0).any(axis=1)
        usable &= np.isin(scenes.order, arrays.image_of_object[labeled])
    return np.flatnonzero(usable)


def box_fault(box: object, width: int, height: int) -> str:
    """Return why a box (left, top, width, height) is not one of an image; empty if it is.

    A box of no area has no fault, nor has one that passes the border: training cuts it off there,
    like detectron2.
    """
    if not isinstance(box, list) or len(box) != 4 or not all(is_number(side) for side in box):
        return f"box {box} is not four finite numbers"
    left, top, w, h = box
    if w < 0 or h < 0:
        return f"box {box} has a negative size"
    if left >= width or top >= height or left + w <= 0 or top + h <= 0:
        return f"box {box} lies outside the image of {width} x {height} px"
    return ""


def is_flat(box: Sequence[float]) -> bool:
    """Return whether a box (left, top, width, height) has no area.

    A few of COCO's published training objects are such; detectron2 leaves them out, too.
    """
    return box[2] == 0 or box[3] == 0


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value from a file is a finite number."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
