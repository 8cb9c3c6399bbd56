"""The images and objects of a detection set in a few large arrays, which processes can share.

A list of a hundred thousand objects is copied into every process that touches it; arrays are not,
and they can be mapped from a file.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


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
        start = _start(self.outline_ends, first)
        ends = [start, *self.outline_ends[first:end].tolist()]
        bounds = self.coordinate_ends[start : ends[-1]].tolist()
        bounds.insert(0, _start(self.coordinate_ends, start))
        outlines = [self.coordinates[a:b] for a, b in pairwise(bounds)]
        return tuple(tuple(outlines[a - start : b - start]) for a, b in pairwise(ends))


def any_per_image(values: NDArray[np.bool_], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether any of each image's values (M,) is true, (n,); false for an image of none."""
    # np.logical_or.reduceat would give an image without objects the next image's first value
    counts = np.concatenate([[0], np.cumsum(values)])[np.concatenate([[0], ends])]
    found: NDArray[np.bool_] = np.diff(counts) > 0
    return found


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
