"""Pascal VOC 2007 and 2012 as classification sets, Everingham et al., IJCV 2010.

One file per class and image set says for each image 1 (present), -1 (absent) or 0 (only difficult
objects). 2007 has four published splits. The test labels of 2012 are not public: test is its
official val split, trainval its official train split, and val a seeded draw from the latter.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import ImageFiles, Images
from transfer.datasets.info import SmallVersion, first_lines_match, info, source, split_counts
from transfer.datasets.objects.voc_classes import CLASSES
from transfer.datasets.splits import uniform_split
from transfer.datasets.synthetic.voc import SMALL_IMAGES, write_voc

SMALL_VAL12 = 40
"""Images of the small VOC 2012 that are held out as val."""


def read_voc07(data: Path, split: str, sizes: Sizes) -> Images:
    """Read VOCdevkit/VOC2007/ImageSets/Main/CLASS_SPLIT.txt and JPEGImages."""
    return _read(data, "VOC2007", split)


def read_voc12(data: Path, split: str, sizes: Sizes) -> Images:
    """Read VOCdevkit/VOC2012/ImageSets/Main/CLASS_SPLIT.txt and JPEGImages."""
    if split == "test":
        return _read(data, "VOC2012", "val")
    trainval = _read(data, "VOC2012", "train")
    return uniform_split(trainval, split, num_val=sizes.counts["val"])


def _read(data: Path, year: str, image_set: str) -> Images:
    folder = data / "VOCdevkit" / year / "ImageSets" / "Main"
    ids = folder.joinpath(f"{image_set}.txt").read_text().split()
    columns = [_read_marks(folder / f"{name}_{image_set}.txt", ids) for name in CLASSES]
    names = [f"VOCdevkit/{year}/JPEGImages/{image_id}.jpg".encode() for image_id in ids]
    labels = np.ascontiguousarray(np.array(columns, dtype=np.int8).T)
    return Images(ImageFiles(data, np.array(names, dtype=np.bytes_)), labels, CLASSES)


def _read_marks(file: Path, ids: list[str]) -> list[int]:
    """Return the mark of one class, 1, 0 or -1, for each image."""
    words = file.read_text().split()
    marks = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    missing = [image_id for image_id in ids if image_id not in marks]
    if missing or not set(marks.values()) <= {1, 0, -1}:
        raise DataError(
            f"{file}: {len(marks)} lines with the marks {sorted(set(marks.values()))}; expected "
            f"1, 0 or -1 for each of {len(ids)} images, {len(missing)} have none {missing[:1]}"
        )
    return [marks[image_id] for image_id in ids]


def _small_sizes07() -> Sizes:
    images = SMALL_IMAGES["2007"]
    counts = split_counts(images["train"], images["val"], images["test"])
    return Sizes(classes=len(CLASSES), counts=counts, drawn=True)


def _small_sizes12() -> Sizes:
    """Return the sizes of the small VOC 2012, whose val images are the test images."""
    images = SMALL_IMAGES["2012"]
    counts = split_counts(images["train"] - SMALL_VAL12, SMALL_VAL12, images["val"])
    return Sizes(classes=len(CLASSES), counts=counts, drawn=True)


# addresses: torchvision 0.29 (voc.py), pytorch/vision#9335; host.robots.ox.ac.uk redirects to the
# first. MD5: torchvision; sizes: TensorFlow Datasets


def _is_2007(root: Path) -> bool:
    return first_lines_match(root / "ImageSets/Main/train.txt", r"\d{6}\s*$")


def _is_2012(root: Path) -> bool:
    return first_lines_match(root / "ImageSets/Main/train.txt", r"\d{4}_\d{6}\s*$")


def _link_2012(root: Path, places: Mapping[str, str], target: Path) -> bool:
    """Link the entries one by one: `convert-sbd` adds masks and a list, but not in a found set."""
    inner = root / "ImageSets" / "Segmentation"
    for folder in (root, root / "ImageSets", inner):
        (target / folder.relative_to(root)).mkdir(parents=True, exist_ok=True)
        for entry in sorted(folder.iterdir()):
            if entry not in (root / "ImageSets", inner):
                (target / entry.relative_to(root)).symlink_to(entry)
    return True


VOC07 = source("voc07", recognize=_is_2007)
VOC12 = source("voc12", recognize=_is_2012, link=_link_2012)

DATASETS = {
    "voc07": info(
        "voc07",
        read=read_voc07,
        small=SmallVersion(sizes=_small_sizes07(), write=partial(write_voc, "2007")),
        sources=(VOC07,),
    ),
    "voc12": info(
        "voc12",
        read=read_voc12,
        small=SmallVersion(sizes=_small_sizes12(), write=partial(write_voc, "2012")),
        sources=(VOC12,),
    ),
}
