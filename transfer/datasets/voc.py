"""Pascal VOC 2007 and 2012 as classification sets, Everingham et al., IJCV 2010.

One file per class and image set says for each image 1 (present), -1 (absent) or 0 (only difficult
objects). 2007 has four published splits. The test labels of 2012 are not public: test is its
official val split, trainval its official train split, and val a seeded draw from the latter.
"""

from pathlib import Path

import numpy as np
import torch

from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError, ImageFiles, Images
from transfer.datasets.splits import plain_split

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)
# fmt: on


def read_voc07(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads VOCdevkit/VOC2007/ImageSets/Main/CLASS_SPLIT.txt and JPEGImages."""
    return _read(data, "VOC2007", split)


def read_voc12(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads VOCdevkit/VOC2012/ImageSets/Main/CLASS_SPLIT.txt and JPEGImages."""
    if split == "test":
        return _read(data, "VOC2012", "val")
    trainval = _read(data, "VOC2012", "train")
    return plain_split(trainval, split, num_val=sizes.counts["val"])


def _read(data: Path, year: str, image_set: str) -> Images:
    folder = data / "VOCdevkit" / year / "ImageSets" / "Main"
    ids = folder.joinpath(f"{image_set}.txt").read_text().split()
    columns = [_marks(folder / f"{name}_{image_set}.txt", ids) for name in CLASSES]
    names = [f"VOCdevkit/{year}/JPEGImages/{image_id}.jpg".encode() for image_id in ids]
    labels = torch.tensor(columns, dtype=torch.int8).T.contiguous()
    return Images(ImageFiles(data, np.array(names, dtype=np.bytes_)), labels, CLASSES)


def _marks(file: Path, ids: list[str]) -> list[int]:
    """1, 0 or -1 of one class for each image."""
    words = file.read_text().split()
    marks = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    missing = [image_id for image_id in ids if image_id not in marks]
    if missing or not set(marks.values()) <= {1, 0, -1}:
        raise DataError(
            f"{file}: {len(marks)} lines with the marks {sorted(set(marks.values()))}; expected "
            f"1, 0 or -1 for each of {len(ids)} images, {len(missing)} have none {missing[:1]}"
        )
    return [marks[image_id] for image_id in ids]
