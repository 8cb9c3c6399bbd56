"""Images with objects: what detection sets hold, packed to be shared by loading processes."""

import hashlib
import pickle
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from transfer.datasets.images import ImageFiles

BORDER_PX = 2.0
"""A box that passes the image's border by more is told of: rounding, and a file that counts pixels
from 0 where VOC counts from 1, stay below this."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """One image and its m objects, in px of the original image.

    Boxes are (left, top, right, bottom). `aside` objects take no part as others do: crowds of COCO
    are neither learned nor missed; VOC's difficult ones are learned, but not missed.
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
    """m, each with its outlines x, y, x, y, ...; empty for crowds. None: none are published."""
    keypoints: NDArray[np.float64] | None = None
    """(m, 17, 3): x, y as published, and 0 not labeled, 1 hidden, 2 visible."""

    def parts(self) -> Iterator[bytes]:
        """All that is known about the image, for the fingerprint."""
        yield f"{self.image_id} {self.width} {self.height} {len(self.boxes)}".encode()
        for values in (self.boxes, self.classes, self.aside, self.keypoints):
            yield b"" if values is None else values.tobytes()
        for outlines in self.polygons or ():
            yield b"%d" % len(outlines)
            yield from (outline.tobytes() for outline in outlines)


class Scenes:
    """One split of a detection set."""

    def __init__(
        self,
        folder: Path,
        scenes: Iterable[Scene],
        class_names: Sequence[str],
        *,
        category_ids: Sequence[int] = (),
        annotations: Path | None = None,
        faulty: Collection[int] = (),
        faults: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        packed: list[bytes] = []
        names: list[bytes] = []
        sizes: list[tuple[int, int]] = []
        for scene in scenes:
            packed.append(pickle.dumps(scene, protocol=5))
            names.append(scene.name.encode())
            sizes.append((scene.width, scene.height))
        self.source = ImageFiles(folder, np.array(names, dtype=np.bytes_))
        self.class_names = tuple(class_names)
        self.category_ids = tuple(category_ids)
        """COCO's number of each class."""
        self.annotations = annotations
        """COCO's json file of the published split: of train and val, drawn from one, too."""
        self.faulty = frozenset(faulty)
        """Places in that file's list of the broken annotations: they are not evaluated either."""
        self.faults = tuple(faults)
        """Broken annotations of the published split, which were left out, one line each."""
        self.notes = tuple(notes)
        """What is odd about annotations, but found in complete sets too."""
        self.sizes = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        """(n, 2): width and height in px."""
        self.wide = self.sizes[:, 0] > self.sizes[:, 1]
        """(n,): for batches of one orientation."""
        self._ends = np.cumsum([len(content) for content in packed], dtype=np.int64)
        # one array: a list of a hundred thousand objects is copied into every loading process
        self._packed = np.frombuffer(b"".join(packed), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[Scene]:
        return (self.scene(i) for i in range(len(self)))

    @property
    def aside_are_crowds(self) -> bool:
        """As in COCO; elsewhere they are difficult objects."""
        return bool(self.category_ids)

    def scene(self, i: int) -> Scene:
        """Unpacked."""
        start = int(self._ends[i - 1]) if i else 0
        scene: Scene = pickle.loads(self._packed[start : int(self._ends[i])].data)
        return scene

    def name(self, i: int) -> str:
        """File of an image below the data folder."""
        return self.source.name(i)

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "Scenes":
        """The images at these positions, in this order."""
        return Scenes(
            self.source.folder,
            (self.scene(int(i)) for i in indices),
            self.class_names,
            category_ids=self.category_ids,
            annotations=self.annotations,
            faulty=self.faulty,
            faults=self.faults,
            notes=self.notes,
        )

    def without(self, names: Collection[str]) -> "Scenes":
        """All images but the named: how a run leaves out the broken ones it tolerates."""
        if not names:
            return self
        return self.subset([i for i in range(len(self)) if self.name(i) not in names])

    def objects_per_class(self) -> NDArray[np.int64]:
        """(L,) objects that are not aside."""
        counts = np.zeros(len(self.class_names), dtype=np.int64)
        for scene in self:
            np.add.at(counts, scene.classes[~scene.aside], 1)
        return counts

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over class names, file names and sizes, and annotations."""
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        digest.update(repr(self.category_ids).encode())
        for i, scene in enumerate(self):
            digest.update(scene.name.encode() + b"\0" + self.source.content(i) + b"\n")
            for part in scene.parts():
                digest.update(part)
        return digest.hexdigest()[:16]


def usable_for_training(
    scenes: Scenes, finds: Literal["boxes", "masks", "keypoints"]
) -> NDArray[np.int64]:
    """Positions of the images to learn from, as detectron2 chooses them.

    Dropped are images without objects, those that hold only crowds, and, for keypoints, those of
    which no keypoint is labeled. Difficult objects of VOC count as any other. Of COCO's 118,287
    training images 117,266 are left for boxes and masks.
    """
    usable = []
    for i, scene in enumerate(scenes):
        keep = not scene.aside.all() if scenes.aside_are_crowds else len(scene.boxes) > 0
        if keep and finds == "keypoints":
            keep = scene.keypoints is not None and bool((scene.keypoints[:, :, 2] > 0).any())
        if keep:
            usable.append(i)
    return np.array(usable, dtype=np.int64)


def box_fault(box: object, width: int, height: int) -> str:
    """Why a box (left, top, width, height) is not one of an image; empty if it is.

    A box of no area, or one that passes the border, is not at fault: `box_note` tells.
    """
    if not isinstance(box, list) or len(box) != 4 or not all(is_number(side) for side in box):
        return f"box {box} is not four finite numbers"
    left, top, w, h = box
    if w < 0 or h < 0:
        return f"box {box} has a negative size"
    if left >= width or top >= height or left + w <= 0 or top + h <= 0:
        return f"box {box} lies outside the image of {width} x {height} px"
    return ""


def box_note(box: Sequence[float], width: int, height: int) -> str:
    """What is odd about a box (left, top, width, height) without fault; empty if nothing is.

    What passes the border is cut off where the box is learned, as detectron2 does.
    """
    if is_flat(box):
        return f"box {box} has no area"
    left, top, w, h = box
    if max(-left, -top, left + w - width, top + h - height) > BORDER_PX:
        return f"box {box} passes the border of the image of {width} x {height} px"
    return ""


def is_flat(box: Sequence[float]) -> bool:
    """Whether a box (left, top, width, height) has no area.

    COCO's published training objects hold a few; detectron2 leaves them out, too.
    """
    return box[2] == 0 or box[3] == 0


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value from a file is a finite number."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
