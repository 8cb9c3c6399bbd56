"""Describable Textures, Cimpoi et al., CVPR 2014, the first of the ten published partitions."""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files, names_below
from transfer.datasets.info import info, source
from transfer.datasets.synthetic.labeled import (
    Draw,
    PerClass,
    labeled_jpegs,
    write_file,
    write_lines,
)


def read_dtd(data: Path, split: str, sizes: Sizes) -> Images:
    """Read dtd/dtd/labels/{train1,val1,test1}.txt and dtd/dtd/images."""
    from torchvision.datasets import DTD

    splits = ("train", "val") if split == "trainval" else (split,)
    parts = [DTD(data, split=name, partition=1) for name in splits]
    names = names_below(data, [file for part in parts for file in part._image_files])
    return image_files(data, names, [y for part in parts for y in part._labels], parts[0].classes)


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/, and labels/ with the three lists of the first partition."""
    folder = data / "dtd" / "dtd"
    classes = ["banded", "blotchy", "bubbly", "cracked", "dotted", "fibrous", "gauzy", "knitted"]
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for label, name in enumerate(classes[: per_class.classes]):
        number = 0
        for split, lines in lists.items():
            for _ in range(getattr(per_class, split)):
                number += 1
                lines.append(f"{name}/{name}_{number:04d}.jpg")
                write_file(folder / "images" / lines[-1], draw(label))
    for split, lines in lists.items():
        write_lines(folder / "labels" / f"{split}1.txt", lines)


DATASETS = {
    "dtd": info(
        "dtd",
        read=read_dtd,
        small=labeled_jpegs(
            PerClass(classes=5, train=16, val=16), first_kind=4, write=_write_small
        ),
        sources=(source("dtd"),),
    ),
}
