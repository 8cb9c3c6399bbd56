"""Birdsnap, Berg et al., CVPR 2014.

The publishers give links to photographs, many of them dead by now, so everybody has another subset.
As in LORAC (Wang et al. 2021) 5 images per class are drawn as val, 5 more as test, the rest is
train; the draws are seeded and use the images that exist.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images
from transfer.datasets.splits import balanced_split, ranks_in_class


def read_birdsnap(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads birdsnap/images/SPECIES/*.jpg."""
    folder = data / "birdsnap" / "images"
    images = read_class_folders(data, folder, class_names(folder))
    in_test = ranks_in_class(images) < sizes.per_class("test")
    if split == "test":
        return images.subset(np.flatnonzero(in_test))
    trainval = images.subset(np.flatnonzero(~in_test))
    return balanced_split(trainval, split, val_per_class=sizes.per_class("val"))
