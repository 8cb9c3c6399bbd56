"""Oxford 102 Flowers, Nilsback and Zisserman, ICVGIP 2008, with its published three splits.

torchvision's class insists on the checksums of the complete label files, which a small copy cannot
have.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import info, source
from transfer.datasets.mat_files import read_mat
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs, write_file

FIELDS = {
    "train": ("trnid",),
    "val": ("valid",),
    "trainval": ("trnid", "valid"),
    "test": ("tstid",),
}
"""Fields of setid.mat that hold the image numbers of each split."""


def read_flowers(data: Path, split: str, sizes: Sizes) -> Images:
    """Read flowers-102/setid.mat, imagelabels.mat and jpg/image_00001.jpg."""
    from torchvision.datasets import Flowers102

    folder = data / "flowers-102"
    (class_ids,) = read_mat(folder / "imagelabels.mat", "labels", squeeze_me=True)
    parts = read_mat(folder / "setid.mat", *FIELDS[split])
    numbers = [int(number) for part in parts for number in part.ravel()]
    names = [f"flowers-102/jpg/image_{number:05d}.jpg" for number in numbers]
    labels = [int(class_ids[number - 1]) - 1 for number in numbers]
    return image_files(data, names, labels, Flowers102.classes[: sizes.classes])


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write jpg/, imagelabels.mat and setid.mat."""
    from scipy.io import savemat

    folder = data / "flowers-102"
    labels = np.arange(per_class.classes * (per_class.trainval + per_class.test))
    labels %= per_class.classes
    for i, label in enumerate(labels):
        write_file(folder / "jpg" / f"image_{i + 1:05d}.jpg", draw(int(label)))
    numbers = np.arange(1, len(labels) + 1)
    first_val = per_class.train * per_class.classes
    first_test = per_class.trainval * per_class.classes
    splits = np.split(numbers, [first_val, first_test])
    ids = dict(zip(("trnid", "valid", "tstid"), (s[None] for s in splits), strict=True))
    savemat(folder / "setid.mat", ids)
    savemat(folder / "imagelabels.mat", {"labels": labels[None] + 1})


PAGE = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"

DATASETS = {
    "flowers": info(
        "flowers",
        read=read_flowers,
        small=labeled_jpegs(
            PerClass(classes=6, train=16, val=16), first_kind=5, write=_write_small
        ),
        sources=(source("flowers"),),
    ),
}
