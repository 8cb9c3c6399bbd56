"""The labelled 1 % and 10 % of ImageNet-1k: SimCLR's published lists, or a class-balanced draw.

Chen et al., ICML 2020, arXiv:2002.05709; the lists are files of its repository. Where they are not
there the draw takes the same number of images from each class. Both are tested on the official val
images; val, for those who choose a setting, is a seeded draw from what is labelled.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.class_folders import class_names
from transfer.datasets.expected import Sizes
from transfer.datasets.imagenet import read_in1k
from transfer.datasets.images import DataError, Images, image_files
from transfer.datasets.splits import balanced_split, seeded_ranks

LISTS = "imagenet_subsets"
"""Folder of the lists, below the data folder; its name in SimCLR's repository."""
ONE_PERCENT, TEN_PERCENT = "1percent.txt", "10percent.txt"
DRAW_SEED = "labelled 0"


def read_in1k_1pct(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads imagenet_subsets/1percent.txt, and ImageNet-1k."""
    return _listed(data, ONE_PERCENT, split, sizes)


def read_in1k_10pct(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads imagenet_subsets/10percent.txt, and ImageNet-1k."""
    return _listed(data, TEN_PERCENT, split, sizes)


def _listed(data: Path, listing: str, split: str, sizes: Sizes) -> Images:
    if split == "test":
        return read_in1k(data, split, sizes)
    classes = class_names(data / "imagenet" / "train")
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    # a line is WNID_NUMBER.JPEG; its order in the file is random
    files = sorted((data / LISTS / listing).read_text().split())
    wnids = [file.partition("_")[0] for file in files]
    unknown = sorted(set(wnids) - set(classes))
    if unknown:
        raise DataError(
            f"{listing} names images of {len(unknown)} classes, first {unknown[0]}, that have no "
            f"folder among the {len(classes)} of imagenet/train"
        )
    names = [f"imagenet/train/{wnid}/{file}" for wnid, file in zip(wnids, files, strict=True)]
    images = image_files(data, names, [label_of[wnid] for wnid in wnids], classes)
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def drawn_share(images: Images, share: float) -> Images:
    """That share of the images, the same number (at least two) from each class; 1.0: all of them.

    The smaller share is part of every larger one.
    """
    if share == 1.0:
        return images
    counts = np.bincount(images.labels.numpy(), minlength=len(images.class_names))
    per_class = max(2, round(share * len(images) / len(counts)))
    if counts.min() < per_class:
        raise DataError(
            f"class {images.class_names[int(counts.argmin())]} has {counts.min()} images, "
            f"{per_class} are to be labelled; the set is incomplete"
        )
    ranks = seeded_ranks(images.source.encoded_names, images.labels.numpy(), DRAW_SEED)
    return images.subset(np.flatnonzero(ranks < per_class))
