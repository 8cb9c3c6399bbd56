"""The images and objects of a detection set in a few large arrays, which processes can share.

A list of a hundred thousand objects is copied into every process that touches it; arrays are not,
and they can be mapped from a file.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

HAS_POLYGONS, HAS_KEYPOINTS = 1, 2
"""Marks of an image whose outlines or keypoints are published."""
NUM_POINTS = 17
"""Keypoints of an object, for an image that has no object to tell."""


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
    the last one of each image.
    """

    names: NDArray[np.bytes_]
    """(n,): UTF-8."""
    image_ids: NDArray[np.bytes_]
    """(n,): JSON, which has numbers of any size as well as names."""
    sizes: NDArray[np.int64]
    """(n, 2): width and height in px."""
    marks: NDArray[np.uint8]
    """(n,): sums of HAS_POLYGONS and HAS_KEYPOINTS."""
    object_ends: NDArray[np.int64]
    """(n,)."""
    boxes: NDArray[np.float64]
    """(M, 4)."""
    classes: NDArray[np.int64]
    """(M,)."""
    aside: NDArray[np.bool_]
    """(M,)."""
    outline_ends: NDArray[np.int64]
    """(M,)."""
    coordinate_ends: NDArray[np.int64]
    """(o,)."""
    coordinates: NDArray[np.float64]
    """(c,)."""
    point_ends: NDArray[np.int64]
    """(n,): in rows of `keypoints`, of which each object has 17, or none where not published."""
    keypoints: NDArray[np.float64]
    """(p, 3)."""

    def __len__(self) -> int:
        return len(self.names)

    def scene(self, i: int) -> Scene:
        """Return one image with its objects; its arrays are parts of these."""
        first, end = _span(self.object_ends, i)
        boxes = self.boxes[first:end]
        keypoints = None
        if self.marks[i] & HAS_KEYPOINTS:
            start, stop = _span(self.point_ends, i)
            count = (stop - start) // len(boxes) if len(boxes) else NUM_POINTS
            keypoints = self.keypoints[start:stop].reshape(len(boxes), count, 3)
        width, height = self.sizes[i].tolist()
        return Scene(
            name=str(self.names[i], "utf-8"),
            image_id=json.loads(self.image_ids[i]),
            width=width,
            height=height,
            boxes=boxes,
            classes=self.classes[first:end],
            aside=self.aside[first:end],
            polygons=self._polygons(first, end) if self.marks[i] & HAS_POLYGONS else None,
            keypoints=keypoints,
        )

    def _polygons(self, first: int, end: int) -> tuple[tuple[NDArray[np.float64], ...], ...]:
        start = int(self.outline_ends[first - 1]) if first else 0
        outline_ends = self.outline_ends[first:end].tolist()
        stop = outline_ends[-1] if outline_ends else start
        at = int(self.coordinate_ends[start - 1]) if start else 0
        outlines = []
        for coordinate_end in self.coordinate_ends[start:stop].tolist():
            outlines.append(self.coordinates[at:coordinate_end])
            at = coordinate_end
        starts = [start, *outline_ends[:-1]]
        pairs = zip(starts, outline_ends, strict=False)  # an image without objects has one start
        return tuple(tuple(outlines[a - start : b - start]) for a, b in pairs)


def any_per_image(values: NDArray[np.bool_], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether any of each image's values (M,) is true, (n,); false for an image of none."""
    counts = np.concatenate([[0], np.cumsum(values)])[np.concatenate([[0], ends])]
    found: NDArray[np.bool_] = np.diff(counts) > 0
    return found


def _span(ends: NDArray[np.int64], i: int) -> tuple[int, int]:
    """Return start and end of a whole among the parts."""
    return int(ends[i - 1]) if i else 0, int(ends[i])


def pack_scenes(scenes: Iterable[Scene]) -> SceneArrays:
    """Return the arrays of scenes, which are taken one by one."""
    packing = _Packing()
    for scene in scenes:
        packing.add(scene)
    return packing.arrays()


class _Packing:
    """Arrays that grow scene by scene."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.image_ids: list[bytes] = []
        self.sizes: list[tuple[int, int]] = []
        self.marks = bytearray()
        self.ends: dict[str, list[int]] = {"object": [], "outline": [], "point": []}
        self.coordinate_ends: list[int] = []
        self.num_coordinates = 0
        self.values = {
            name: bytearray() for name in ("boxes", "classes", "aside", "coordinates", "keypoints")
        }

    def add(self, scene: Scene) -> None:
        """Add an image and its objects."""
        self.names.append(scene.name.encode())
        self.image_ids.append(json.dumps(scene.image_id).encode())
        self.sizes.append((scene.width, scene.height))
        has_polygons, has_keypoints = scene.polygons is not None, scene.keypoints is not None
        self.marks.append(HAS_POLYGONS * has_polygons + HAS_KEYPOINTS * has_keypoints)
        self.values["boxes"] += np.asarray(scene.boxes, np.float64).tobytes()
        self.values["classes"] += np.asarray(scene.classes, np.int64).tobytes()
        self.values["aside"] += np.asarray(scene.aside, np.bool_).tobytes()
        if scene.keypoints is not None:
            self.values["keypoints"] += np.asarray(scene.keypoints, np.float64).tobytes()
        for outlines in scene.polygons or ((),) * len(scene.boxes):
            for outline in outlines:
                self.values["coordinates"] += np.asarray(outline, np.float64).tobytes()
                self.num_coordinates += len(outline)
                self.coordinate_ends.append(self.num_coordinates)
            self.ends["outline"].append(len(self.coordinate_ends))
        self.ends["object"].append(len(self.values["aside"]))
        self.ends["point"].append(len(self.values["keypoints"]) // 24)

    def arrays(self) -> SceneArrays:
        """Return everything that was added."""
        ends = {name: np.array(ends, np.int64) for name, ends in self.ends.items()}
        values = self.values
        return SceneArrays(
            names=np.array(self.names, dtype=np.bytes_),
            image_ids=np.array(self.image_ids, dtype=np.bytes_),
            sizes=np.array(self.sizes, dtype=np.int64).reshape(-1, 2),
            marks=np.frombuffer(self.marks, np.uint8),
            object_ends=ends["object"],
            boxes=np.frombuffer(values["boxes"], np.float64).reshape(-1, 4),
            classes=np.frombuffer(values["classes"], np.int64),
            aside=np.frombuffer(values["aside"], np.bool_),
            outline_ends=ends["outline"],
            coordinate_ends=np.array(self.coordinate_ends, np.int64),
            coordinates=np.frombuffer(values["coordinates"], np.float64),
            point_ends=ends["point"],
            keypoints=np.frombuffer(values["keypoints"], np.float64).reshape(-1, 3),
        )


ARRAY_NAMES = tuple(field.name for field in fields(SceneArrays))
