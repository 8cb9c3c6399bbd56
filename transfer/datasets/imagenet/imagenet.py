"""ImageNet-1k, ImageNet-100, and SimCLR's 1 % and 10 % subsets.

The test labels are not public: test is the official val split (50 images per class), and trainval
is the official train split. val is a seeded draw of 50 images per class from trainval, used to
choose learning rates. The probes only use trainval and test. No paper reports the number of
training images of ImageNet-100.

in1k_1pct, in1k_10pct: the labeled 1 % and 10 % of Chen et al., ICML 2020, arXiv:2002.05709. The
lists are in its repository. If they are missing, `splits.draw_balanced_fraction` draws 13 or 128
images of each class, 13,000 and 128,000 in all instead of 12,811 and 128,116. val is drawn from
the labeled images.

val images are published in one flat folder. Their classes are in the 2012 devkit (numbers of
`meta.mat`) and in Kaggle's copy (`LOC_val_solution.csv`).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from pretrain.running.reading import read_text
from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import Images, class_names, image_files, read_class_folders, read_mat
from transfer.datasets.info import SmallVersion, facts, info, source
from transfer.datasets.lists import read_names
from transfer.datasets.splits import with_val
from transfer.datasets.synthetic.labeled import (
    File,
    PerClass,
    labeled_jpegs,
    write_lines,
)
from transfer.datasets.synthetic.patterns import Pixels, draw_size_px, kinds_of_classes, paint

LISTS = "imagenet_subsets"
"""Folder of SimCLR's lists, named as in its repository."""
ONE_PERCENT, TEN_PERCENT = "1percent.txt", "10percent.txt"
SMALL_WNIDS: tuple[str, ...] = facts()["small_imagenet"]
"""Classes of the small ImageNet."""
SMALL = PerClass(classes=len(SMALL_WNIDS))
SMALL_FIRST_KIND = 12
SMALL_LABELED = {ONE_PERCENT: 6, TEN_PERCENT: 12}
"""Listed images per class of the small ImageNet, two held out."""


def imagenet1k_wnids() -> list[str]:
    """Return the class folders of ILSVRC 2012, as timm lists them (imagenet_synsets.txt)."""
    return Path(__file__).with_name("imagenet1k.txt").read_text().split()


def imagenet100_wnids() -> list[str]:
    """Return CMC's classes (Tian et al. 2020), common in the literature.

    JCL, LORAC, UniCLR and LooC use them.
    """
    return Path(__file__).with_name("imagenet100.txt").read_text().split()


def small_in100_wnids() -> list[str]:
    """Return the classes of the small ImageNet that are in ImageNet-100."""
    return sorted({*SMALL_WNIDS} & {*imagenet100_wnids()})


def paint_small_class(wnid: str, rng: np.random.Generator) -> Pixels:
    """Return a new image of a class of the small ImageNet."""
    kinds = kinds_of_classes(len(SMALL_WNIDS), SMALL_FIRST_KIND)
    return paint(kinds[SMALL_WNIDS.index(wnid)], draw_size_px(rng), rng)


def read_in1k(data: Path, split: str, sizes: Sizes) -> Images:
    """Read imagenet/train/WNID/*.JPEG and imagenet/val/WNID/*.JPEG."""
    return _read(data, split, sizes, class_names(data / "imagenet" / "train"))


def read_in100(data: Path, split: str, sizes: Sizes) -> Images:
    """Read the existing classes of `imagenet100.txt`, in alphabetical order."""
    present = set(class_names(data / "imagenet" / "train"))
    return _read(data, split, sizes, [w for w in sorted(imagenet100_wnids()) if w in present])


def _read(data: Path, split: str, sizes: Sizes, wnids: list[str]) -> Images:
    folder = data / "imagenet" / ("val" if split == "test" else "train")
    return with_val(read_class_folders(data, folder, wnids), split, sizes)


def read_subset(list_file: str, data: Path, split: str, sizes: Sizes) -> Images:
    """Read the ImageNet-1k images in a list of imagenet_subsets/."""
    if split == "test":
        return read_in1k(data, split, sizes)
    classes = class_names(data / "imagenet" / "train")
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    # a line is WNID_NUMBER.JPEG; its order in the file is random
    files = sorted(read_names(data / LISTS / list_file))
    wnids = [file.partition("_")[0] for file in files]
    if unknown := sorted(set(wnids) - set(classes)):
        raise DataError(
            f"{list_file}: {unknown[:5]} are not among the {len(classes)} classes of imagenet/train"
        )
    names = [f"imagenet/train/{wnid}/{file}" for file, wnid in zip(files, wnids, strict=True)]
    images = image_files(data, names, [label_of[wnid] for wnid in wnids], classes)
    return with_val(images, split, sizes)


def _small_train_file(wnid: str, i: int) -> str:
    return f"{wnid}_{10 + 17 * i}.JPEG"


def _write_lists(data: Path, rng: np.random.Generator) -> None:
    """Write both lists, with the last training images of each small class."""
    for list_file, count in SMALL_LABELED.items():
        numbers = range(SMALL.trainval - count, SMALL.trainval)
        names = [_small_train_file(wnid, i) for i in numbers for wnid in SMALL_WNIDS]
        write_lines(data / LISTS / list_file, names)


def _small_sizes(list_file: str) -> Sizes:
    return replace(SMALL, train=SMALL_LABELED[list_file] - 2, val=2).sizes


def _small_files(per_class: PerClass) -> Iterator[File]:
    """Yield a folder per class in train/ and val/."""
    number = 0
    for label, wnid in enumerate(SMALL_WNIDS):
        for i in range(per_class.trainval):
            yield f"imagenet/train/{wnid}/{_small_train_file(wnid, i)}", label
        for _ in range(per_class.test):
            number += 1
            yield f"imagenet/val/{wnid}/ILSVRC2012_val_{number:08d}.JPEG", label


DEVKIT_LISTS = ("meta.mat", "ILSVRC2012_validation_ground_truth.txt")
KAGGLE = "LOC_val_solution.csv"
VAL_FOLDERS = (
    "val",
    "ILSVRC/Data/CLS-LOC/val",
    "imagenet_object_localization_patched2019/ILSVRC/Data/CLS-LOC/val",
)
"""Folders of unpacked val images, from ImageNet or Kaggle."""


def sort_val_images(raw: Path) -> None:
    """Move val images from the archive's flat folder to class folders.

    Images in class folders stay. Raises DataError if the lists do not give the class of each image.
    """
    for val in (raw / name for name in VAL_FOLDERS):
        names = sorted(file.name for file in val.glob("ILSVRC2012_val_*.JPEG"))
        if not names:
            continue
        wnids = _from_devkit(raw / "ILSVRC2012_devkit_t12") or _from_kaggle(raw)
        unlisted = [name for name in names if name not in wnids]
        if unlisted:
            raise DataError(
                f"{val}: no list has the class of {len(unlisted):,} of {len(names):,} images, "
                f"first {unlisted[0]}; expected it in the devkit or in {KAGGLE}. Get these again"
            )
        for name in names:
            (val / wnids[name]).mkdir(exist_ok=True)
            (val / name).rename(val / wnids[name] / name)


def _from_devkit(folder: Path) -> dict[str, str]:
    """Read the devkit's list.

    Line i is the class number of val image i, as in meta.mat.
    """
    meta, truth = (folder / "data" / name for name in DEVKIT_LISTS)
    if not (meta.is_file() and truth.is_file()):
        return {}
    (synsets,) = read_mat(meta, "synsets", squeeze_me=True)
    wnids = {int(entry["ILSVRC2012_ID"]): str(entry["WNID"]) for entry in synsets}
    numbers = enumerate(read_text(truth).split(), start=1)
    return {f"ILSVRC2012_val_{i:08d}.JPEG": wnids[int(number)] for i, number in numbers}


def _from_kaggle(folder: Path) -> dict[str, str]:
    """Read Kaggle's list.

    Each line is an image name, a comma, its class and boxes.
    """
    if not (folder / KAGGLE).is_file():
        return {}
    lines = read_text(folder / KAGGLE, errors="replace").splitlines()[1:]
    pairs = [line.replace(",", " ").split() for line in lines]
    return {f"{pair[0]}.JPEG": pair[1] for pair in pairs if len(pair) > 1}


IMAGENET = source("imagenet", arrange=sort_val_images)
IMAGENET_AND_LISTS = (IMAGENET, source("imagenet-lists"))

DATASETS = {
    "in1k": info(
        "in1k",
        read=read_in1k,
        known_classes=imagenet1k_wnids,
        small=labeled_jpegs(SMALL, first_kind=SMALL_FIRST_KIND, files=_small_files),
        sources=(IMAGENET,),
    ),
    "in100": info(
        "in100",
        read=read_in100,
        known_classes=imagenet100_wnids,
        small=SmallVersion(sizes=PerClass(classes=len(SMALL_WNIDS) - 2).sizes, needs=("in1k",)),
        sources=(IMAGENET,),
    ),
    "in1k_1pct": info(
        "in1k_1pct",
        read=partial(read_subset, ONE_PERCENT),
        small=SmallVersion(sizes=_small_sizes(ONE_PERCENT), write=_write_lists, needs=("in1k",)),
        sources=IMAGENET_AND_LISTS,
    ),
    "in1k_10pct": info(
        "in1k_10pct",
        read=partial(read_subset, TEN_PERCENT),
        small=SmallVersion(sizes=_small_sizes(TEN_PERCENT), needs=("in1k", "in1k_1pct")),
        sources=IMAGENET_AND_LISTS,
    ),
}
