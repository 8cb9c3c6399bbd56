"""Small versions of data sets with one label per image.

The file of such a data set calls `labeled_jpegs` with the number of images per class and with a
function that writes images and annotation files the way the publisher does. That function gets
`draw`, which returns a new image of a class.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.info import SmallVersion
from transfer.datasets.synthetic.patterns import draw_size_px, jpeg, kinds_of_classes, paint

Draw = Callable[[int], bytes]
"""Returns a new image of class `label` as a JPEG file."""


@dataclass(frozen=True, kw_only=True)
class PerClass:
    """Images per class of a small version."""

    classes: int
    train: int = 24
    val: int = 8
    test: int = 20

    @property
    def trainval(self) -> int:
        """Images of train and val together."""
        return self.train + self.val

    @property
    def sizes(self) -> Sizes:
        """Images of each split over all classes, as `small-data.json` stores them."""
        splits = ("train", "val", "trainval", "test")
        counts = {split: self.classes * getattr(self, split) for split in splits}
        return Sizes(classes=self.classes, counts=counts, drawn=True)


def labeled_jpegs(
    per_class: PerClass, *, first_kind: int, write: Callable[[Path, PerClass, Draw], None]
) -> SmallVersion:
    """Return a small version whose images are JPEG files of 64 to 80 px a side.

    first_kind: kind of the first class; choose another one than the sets before.
    write: gets the data folder, the images per class and `draw`.
    """

    def write_set(data: Path, rng: np.random.Generator) -> None:
        kinds = kinds_of_classes(per_class.classes, first_kind)
        write(data, per_class, partial(_draw_jpeg, kinds, rng))

    return SmallVersion(sizes=per_class.sizes, write=write_set)


def _draw_jpeg(kinds: list[int], rng: np.random.Generator, label: int) -> bytes:
    # the comment holds the class, so that tests know it without the annotation files
    return jpeg(paint(kinds[label], draw_size_px(rng), rng), comment=f"class {label}")


def write_file(file: Path, content: bytes) -> None:
    """Write a file and create the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def write_lines(file: Path, lines: Sequence[str]) -> None:
    """Write lines, each closed by a newline, and create the folders above the file."""
    write_file(file, "".join(f"{line}\n" for line in lines).encode())
