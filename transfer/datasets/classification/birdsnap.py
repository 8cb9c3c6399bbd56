"""Birdsnap, Berg et al., CVPR 2014.

The publishers give links to photographs. Many of them are dead by now, so everybody has another
subset; the counts below are those of the subset that LORAC (Wang et al., arXiv:2108.02696) could
still download. As there, 5 images per class are drawn as val, 5 more as test, and the rest is
train; the draws are seeded and use the images that exist.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, class_names, read_class_folders
from transfer.datasets.info import info, source
from transfer.datasets.splits import balanced_split, ranks_in_class
from transfer.datasets.synthetic.labeled import (
    Draw,
    PerClass,
    labeled_jpegs,
    write_file,
    write_lines,
)


def read_birdsnap(data: Path, split: str, sizes: Sizes) -> Images:
    """Read birdsnap/images/SPECIES/*.jpg."""
    folder = data / "birdsnap" / "images"
    images = read_class_folders(data, folder, class_names(folder))
    in_test = ranks_in_class(images) < sizes.per_class("test")
    if split == "test":
        return images.subset(np.flatnonzero(in_test))
    trainval = images.subset(np.flatnonzero(~in_test))
    return balanced_split(trainval, split, val_per_class=sizes.per_class("val"))


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write a folder per species, and species.txt."""
    folder = data / "birdsnap"
    species = ["Acadian Flycatcher", "Blue Jay", "Dunlin", "Gadwall", "Killdeer", "Osprey", "Sora"]
    species = species[: per_class.classes]
    directories = [name.replace(" ", "_") for name in species]
    numbered = enumerate(zip(species, directories, strict=True), start=1)
    lines = [f"{i}\t{name}\t{name}\t{directory}" for i, (name, directory) in numbered]
    write_lines(folder / "species.txt", ["id\tcommon\tscientific\tdir", *lines])
    for label, directory in enumerate(directories):
        for i in range(per_class.trainval + per_class.test):
            write_file(folder / "images" / directory / f"{430_000 + 31 * i}.jpg", draw(label))


DATASETS = {
    "birdsnap": info(
        "birdsnap",
        read=read_birdsnap,
        small=labeled_jpegs(PerClass(classes=6), first_kind=1, write=_write_small),
        sources=(source("birdsnap"),),
    ),
}
