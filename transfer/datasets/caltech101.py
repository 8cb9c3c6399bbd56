"""Caltech-101, Fei-Fei et al., CVPR 2004 workshop.

Its publishers name no split. The usual one takes 30 images per class for training and tests on the
rest; the published 3,060 and 6,084 images only add up with the background folder as a class of
its own, so there are 102 classes here. Of the 30, 5 are held out as val; both draws are seeded.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images
from transfer.datasets.splits import balanced_split, ranks_in_class


def read_caltech101(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads caltech101/101_ObjectCategories/CLASS/image_0001.jpg."""
    folder = data / "caltech101" / "101_ObjectCategories"
    images = read_class_folders(data, folder, class_names(folder))
    in_trainval = ranks_in_class(images) < sizes.per_class("trainval")
    if split == "test":
        return images.subset(np.flatnonzero(~in_trainval))
    trainval = images.subset(np.flatnonzero(in_trainval))
    return balanced_split(trainval, split, val_per_class=sizes.per_class("val"))
