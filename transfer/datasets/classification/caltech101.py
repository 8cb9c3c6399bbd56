"""Caltech-101, Fei-Fei et al., CVPR 2004 workshop.

Its publishers name no split. The usual one takes 30 images per class for training and tests on the
rest. The published 3,060 and 6,084 images only add up with the background folder as a class of its
own, so there are 102 classes here. Of the 30 images, 5 are held out as val; both draws are seeded.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.splits import balanced_split, ranks_in_class
from transfer.datasets.synthetic.files import write_file
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


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


# address and MD5: torchvision 0.29 (caltech.py); size: TensorFlow Datasets (checksums.tsv)
SOURCE = Source(
    key="caltech101",
    folder="caltech101/101_ObjectCategories",
    archives=(
        Archive(
            name="caltech-101.zip",
            urls=("https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip",),
            num_bytes=137_414_764,
            checksum="md5:3138e1922a9193bfa496528edbbc45d0",
            nested="*101_ObjectCategories.tar.gz",
        ),
    ),
    terms="unknown",
    terms_url="https://data.caltech.edu/records/mzrjq-6wc02",
    parts=tuple(
        Part(path=name, holds="image_0001.jpg")
        for name in ("BACKGROUND_Google", "Faces", "accordion", "airplanes")
    ),
    checked_as=("caltech101",),
)

DATASETS = {
    "caltech101": DatasetInfo(
        title="Caltech-101",
        folder="caltech101/101_ObjectCategories",
        num_classes=102,
        metric="mean_per_class",
        counts=split_counts(2_550, 510, 6_084),
        read=read_caltech101,
        how_to_get="Unpack caltech-101.zip from https://data.caltech.edu/records/mzrjq-6wc02 "
        "and the 101_ObjectCategories.tar.gz in it into caltech101/; keep "
        "BACKGROUND_Google.",
        small=labeled_jpegs(PerClass(classes=5), first_kind=2, write=_write_small),
        sources=(SOURCE,),
    )
}
