"""Caltech-101, Fei-Fei et al., CVPR 2004 workshop.

Its publishers name no split. The usual one takes 30 images per class for training and tests on the
rest. The published 3,060 and 6,084 images only add up with the background folder as a class of its
own, so there are 102 classes here. Of the 30 images, 5 are held out as val; both draws are seeded.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, class_names, read_class_folders
from transfer.datasets.info import info, source
from transfer.datasets.splits import balanced_split, ranks_in_class
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs, write_file


def read_caltech101(data: Path, split: str, sizes: Sizes) -> Images:
    """Read caltech101/101_ObjectCategories/CLASS/image_0001.jpg."""
    folder = data / "caltech101" / "101_ObjectCategories"
    images = read_class_folders(data, folder, class_names(folder))
    in_trainval = ranks_in_class(images) < sizes.per_class("trainval")
    if split == "test":
        return images.subset(np.flatnonzero(~in_trainval))
    trainval = images.subset(np.flatnonzero(in_trainval))
    return balanced_split(trainval, split, val_per_class=sizes.per_class("val"))


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write a folder per category, the background class among them."""
    folder = data / "caltech101" / "101_ObjectCategories"
    classes = ["BACKGROUND_Google", "Faces", "Leopards", "accordion", "airplanes", "anchor", "ant"]
    for label, name in enumerate(classes[: per_class.classes]):
        for i in range(per_class.trainval + per_class.test):
            write_file(folder / name / f"image_{i + 1:04d}.jpg", draw(label))
    # the published archive has such a file, which is no image
    write_file(folder / "BACKGROUND_Google" / "tmp", b"")


DATASETS = {
    "caltech101": info(
        "caltech101",
        read=read_caltech101,
        small=labeled_jpegs(PerClass(classes=5), first_kind=2, write=_write_small),
        sources=(source("caltech101"),),
    ),
}
