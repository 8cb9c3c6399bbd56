"""Oxford 102 Flowers, Nilsback and Zisserman, ICVGIP 2008, with its published three splits.

torchvision's class insists on the checksums of the complete label files, which a small copy cannot
have.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.mat_files import read_mat
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.synthetic.files import write_file
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs

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
# addresses and MD5: torchvision 0.29 (flowers102.py); sizes: TensorFlow Datasets
SOURCE = Source(
    key="flowers",
    folder="flowers-102",
    archives=(
        Archive(
            name="102flowers.tgz",
            urls=(f"{PAGE}102flowers.tgz",),
            num_bytes=344_862_509,
            checksum="md5:52808999861908f626f3c1f4e79d11fa",
        ),
        Archive(
            name="imagelabels.mat",
            urls=(f"{PAGE}imagelabels.mat",),
            num_bytes=502,
            checksum="md5:e0620be6f572b9609742df49c70aed4d",
        ),
        Archive(
            name="setid.mat",
            urls=(f"{PAGE}setid.mat",),
            num_bytes=14_989,
            checksum="md5:a5357ecc9cb78c4bef273ce3793fc85c",
        ),
    ),
    terms="unknown",
    terms_url=PAGE,
    parts=(
        Part(path="jpg", holds="image_00001.jpg"),
        Part(path="setid.mat"),
        Part(path="imagelabels.mat"),
    ),
    checked_as=("flowers",),
)

DATASETS = {
    "flowers": DatasetInfo(
        title="Oxford 102 Flowers",
        folder="flowers-102",
        num_classes=102,
        metric="mean_per_class",
        counts=split_counts(1_020, 1_020, 6_149),
        read=read_flowers,
        how_to_get="From https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ put "
        "imagelabels.mat, setid.mat and the unpacked 102flowers.tgz (jpg/) into "
        "flowers-102/.",
        small=labeled_jpegs(
            PerClass(classes=6, train=16, val=16), first_kind=5, write=_write_small
        ),
        sources=(SOURCE,),
    )
}
