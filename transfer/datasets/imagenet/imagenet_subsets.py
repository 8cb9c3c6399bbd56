"""The labeled 1 % and 10 % of ImageNet-1k, by SimCLR's published lists.

Chen et al., ICML 2020, arXiv:2002.05709; the lists are files of its repository. Where they are
absent, `splits.draw_balanced_share` draws as many images. Both lists are tested on the official val
images; val, on which settings can be chosen, is a seeded draw from the labeled images.
"""

from functools import partial
from pathlib import Path

import numpy as np

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.imagenet.imagenet import (
    IMAGENET,
    SMALL,
    SMALL_WNIDS,
    read_in1k,
    small_train_file,
)
from transfer.datasets.images import Images, class_names, image_files
from transfer.datasets.info import SmallVersion, info, source
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.labeled import PerClass, write_lines

FOLDER = "imagenet_subsets"
"""Folder of the lists, below the data folder; its name in SimCLR's repository."""
ONE_PERCENT, TEN_PERCENT = "1percent.txt", "10percent.txt"
HOW_TO_GET = (
    "Get ImageNet-1k as above, and 1percent.txt and 10percent.txt from imagenet_subsets/ of "
    "https://github.com/google-research/simclr into imagenet_subsets/."
)
SMALL_LABELED = {ONE_PERCENT: 6, TEN_PERCENT: 12}
"""Images of each class of the small ImageNet that a list names."""
SMALL_VAL = 2
"""Images of each class among them that are held out as val."""


def read_subset(list_file: str, data: Path, split: str, sizes: Sizes) -> Images:
    """Read a list of imagenet_subsets/, and the images of ImageNet-1k that it names."""
    if split == "test":
        return read_in1k(data, split, sizes)
    classes = class_names(data / "imagenet" / "train")
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    # a line is WNID_NUMBER.JPEG; its order in the file is random
    files = sorted((data / FOLDER / list_file).read_text().split())
    wnids = [file.partition("_")[0] for file in files]
    unknown = sorted(set(wnids) - set(classes))
    if unknown:
        raise DataError(
            f"{list_file} names images of {len(unknown)} classes, first {unknown[0]}, that have no "
            f"folder among the {len(classes)} of imagenet/train"
        )
    names = [f"imagenet/train/{wnid}/{file}" for wnid, file in zip(wnids, files, strict=True)]
    images = image_files(data, names, [label_of[wnid] for wnid in wnids], classes)
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _write_small(data: Path, rng: np.random.Generator) -> None:
    """Write both lists: names of the last training images of each class of the small ImageNet."""
    for list_file, count in SMALL_LABELED.items():
        names = [
            small_train_file(wnid, i)
            for i in range(SMALL.trainval - count, SMALL.trainval)
            for wnid in SMALL_WNIDS
        ]
        write_lines(data / FOLDER / list_file, names)


def _small_sizes(list_file: str) -> Sizes:
    train = SMALL_LABELED[list_file] - SMALL_VAL
    return PerClass(classes=SMALL.classes, train=train, val=SMALL_VAL, test=SMALL.test).sizes


# addresses, sizes and SHA-256: TensorFlow Datasets (imagenet2012_subset.txt)
LISTS = "https://raw.githubusercontent.com/google-research/simclr/master/imagenet_subsets/"

DATASETS = {
    "in1k_1pct": info(
        "in1k_1pct",
        read=partial(read_subset, ONE_PERCENT),
        small=SmallVersion(sizes=_small_sizes(ONE_PERCENT), write=_write_small, needs=("in1k",)),
        sources=(IMAGENET, source("imagenet-lists")),
    ),
    "in1k_10pct": info(
        "in1k_10pct",
        read=partial(read_subset, TEN_PERCENT),
        small=SmallVersion(sizes=_small_sizes(TEN_PERCENT), needs=("in1k", "in1k_1pct")),
        sources=(IMAGENET, source("imagenet-lists")),
    ),
}
