"""All datasets, and functions to open them.

This module merges the `DATASETS` of several files. To add a dataset, write a file for it, and add
it to the import and to `FILES`.

Splits: trainval is the disjoint union of train and val. test is the official test split. If its
labels are not public (ImageNet, Places365, VOC 2012), test is the official val split, and trainval
is the official train split. Published train and val lists are used if they exist (Aircraft, DTD,
Flowers, VOC 2007); otherwise, val is a seeded draw of the usual size (`splits.py`). Counts are the
published ones; detection datasets count all images, with and without objects.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from pretrain.running.command_line import nearest
from pretrain.running.plugins import with_plugins
from transfer.datasets import (
    cifar,
    labeled,
)
from transfer.datasets.expected import DataError, Sizes, small_sizes
from transfer.datasets.imagenet import imagenet, imagenet_c, objectnet
from transfer.datasets.images import Images
from transfer.datasets.info import AnySplit, DatasetInfo, facts
from transfer.datasets.objects import coco, voc
from transfer.datasets.scenes import Scenes
from transfer.datasets.segmented import Segmented
from transfer.datasets.splits import Split

SPLITS = ("train", "val", "trainval", "test")
FILES = (
    labeled,
    cifar,
    imagenet,
    imagenet_c,
    objectnet,
    voc,
    coco,
)
"""Modules that describe datasets."""
DAMAGES = (OSError, RuntimeError, ValueError, LookupError, TypeError, OverflowError)
"""Errors of our readers and libraries for missing or damaged annotation files."""
CONTENTS = {Images: "labels per image", Scenes: "objects in images", Segmented: "masks of classes"}
BUILT_IN = {key: info for file in FILES for key, info in file.DATASETS.items()}
DATASETS: dict[str, DatasetInfo] = with_plugins(
    {key: BUILT_IN[key] for key in (*facts()["datasets"], *BUILT_IN)}, "datasets"
)
"""The suite's datasets, in the order of `check-data`, then those of plugins."""


def dataset_info(key: str) -> DatasetInfo:
    """Return the description of a dataset; raises DataError for an unknown key."""
    if key not in DATASETS:
        raise DataError(
            f"unknown dataset {key!r}. Did you mean {nearest(key, DATASETS)}? "
            f"To list all {len(DATASETS)} datasets: python -m transfer check-data"
        )
    return DATASETS[key]


def expected_sizes(key: str, data: Path) -> Sizes:
    """Return a dataset's sizes from `small-data.json`, otherwise the published ones."""
    info = dataset_info(key)
    counts = info.counts
    if info.counts_of_parts is not None and info.exists_in(data):
        counts = info.counts_of_parts(data)
    return small_sizes(data).get(key, Sizes(classes=info.num_classes, counts=counts))


def _open_as(kind: type[Split], key: str, data: Path, split: str) -> Split:
    images = open_any(key, data, split)
    if not isinstance(images, kind):
        title = dataset_info(key).title
        raise DataError(f"{title} has {CONTENTS[type(images)]}, not {CONTENTS[kind]}")
    return images


open_split = partial(_open_as, Images)
"""Opens a split (train, val, trainval or test) of a classification dataset."""
open_scenes = partial(_open_as, Scenes)
"""Opens a split of a detection dataset."""
open_segmented = partial(_open_as, Segmented)
"""Opens a split of a segmentation dataset."""


def load_annotations(keys: Iterable[str], data: Path, cache: Path, *, parse: bool = True) -> None:
    """Load large annotation files from the cache; parse and store the others.

    parse: if False, only load what an earlier process has stored; write nothing. Missing and
    broken datasets are ignored here; opening them raises an error.
    """
    for info in map(dataset_info, keys):
        if info.load_annotations is not None and info.exists_in(data):
            with suppress(DataError, *DAMAGES):
                info.load_annotations(data, cache, parse)


def open_any(key: str, data: Path, split: str) -> AnySplit:
    """Open one split of a dataset of any type."""
    info = dataset_info(key)
    if split not in info.counts:
        raise DataError(f"{info.title} has no split {split!r}, only {', '.join(info.counts)}")
    if missing := info.missing_path(data):
        raise DataError(
            f"{info.title}: {missing} does not exist or is empty. {instructions(key, data)}"
        )
    try:
        return info.read(data, split, expected_sizes(key, data))
    except DAMAGES as error:
        message = f"{info.title}, split {split}: {damage(error)}. {instructions(key, data)}"
        raise DataError(message) from error


def damage(error: Exception) -> str:
    """Return why a dataset cannot be read."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename} is missing"
    return str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"


def instructions(key: str, data: Path | None = None) -> str:
    """Return how to get a dataset: the command, if any, and what to do by hand.

    data: folder of all datasets, if it is known.
    """
    info = dataset_info(key)
    if any(source.access == "download" for source in info.sources):
        option = f" --data {data}" if data else ""
        return f"Run `python -m transfer get-data {key}{option}`. By hand: {info.how_to_get}"
    return info.how_to_get
