"""All data sets, and the functions that open them.

Files with `DATASETS` describe them; this module merges these. A new data set needs its file, and
its name in the import and in `FILES`.

Rule of the splits: train and val are disjoint and together are trainval. test is the official test
split, or the official val split where test labels are not public (ImageNet, Places365, VOC 2012);
trainval is then the official train split. Published train and val lists are used where they exist
(Aircraft, DTD, Flowers, VOC 2007), elsewhere val is a seeded draw of the usual size (`splits.py`).
Counts are those of the sets as published. Those of detection sets are of all images, with and
without objects.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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
"""The files that describe data sets."""
DAMAGES = (OSError, RuntimeError, ValueError, LookupError, TypeError, OverflowError)
"""Errors of torchvision, scipy and our own readers on absent and damaged annotation files."""
CONTENTS = {Images: "labels per image", Scenes: "objects in images", Segmented: "masks of classes"}
OWN = {key: info for file in FILES for key, info in file.DATASETS.items()}
DATASETS: dict[str, DatasetInfo] = with_plugins(
    {key: OWN[key] for key in (*facts()["datasets"], *OWN)}, "datasets"
)
"""The sets of the suite, in the order of the tables of `check-data`, then those of plugins."""


def dataset_info(key: str) -> DatasetInfo:
    """Return the description of a data set; DataError lists the known ones."""
    if key not in DATASETS:
        raise DataError(
            f"no data set {key!r}; did you mean {nearest(key, DATASETS)}? "
            f"python -m transfer check-data names all {len(DATASETS)}"
        )
    return DATASETS[key]


def expected_sizes(key: str, data: Path) -> Sizes:
    """Return the published sizes of a set, or those that `small-data.json` gives for a copy."""
    info = dataset_info(key)
    counts = info.counts
    if info.counts_of_parts is not None and info.is_there(data):
        counts = info.counts_of_parts(data)
    return small_sizes(data).get(key, Sizes(classes=info.num_classes, counts=counts))


def _open_as(kind: type[Split], key: str, data: Path, split: str) -> Split:
    images = open_any(key, data, split)
    if not isinstance(images, kind):
        title = dataset_info(key).title
        raise DataError(f"{title} has {CONTENTS[type(images)]}, not {CONTENTS[kind]}")
    return images


open_split = partial(_open_as, Images)
"""Opens one split (train, val, trainval or test) of a set with labels per image."""
open_scenes = partial(_open_as, Scenes)
"""Opens one split of a detection set."""
open_segmented = partial(_open_as, Segmented)
"""Opens one split of a segmentation set."""


def load_annotations(keys: Iterable[str], data: Path, cache: Path, *, parse: bool = True) -> None:
    """Load large annotation files of these sets from the cache; parse and store those not in it.

    parse: False loads the arrays that an earlier process has stored, and writes nothing.
    Sets that are absent or broken are left to the functions that open them, which say so.
    """
    for info in map(dataset_info, keys):
        if info.load_annotations is not None and info.is_there(data):
            with suppress(DataError, *DAMAGES):
                info.load_annotations(data, cache, parse)


def open_any(key: str, data: Path, split: str, *, sizes: Sizes | None = None) -> AnySplit:
    """Open one split of any set below the data folder; all kinds have names and a fingerprint.

    sizes: those by which splits are drawn, instead of `expected_sizes`.
    """
    info = dataset_info(key)
    if split not in info.counts:
        raise DataError(f"{info.title} has no split {split!r}, only {', '.join(info.counts)}")
    if missing := info.missing_path(data):
        raise DataError(f"{info.title}: {missing} is not there. {info.how_to_get}")
    with _named_damages(f"{info.title}, split {split}", info.how_to_get):
        return info.read(data, split, expected_sizes(key, data) if sizes is None else sizes)


def sizes_before_description(key: str, data: Path) -> Sizes:
    """Return the sizes by which an excerpt is read to find its own; DataError if it is damaged."""
    info = dataset_info(key)
    if info.excerpt_sizes is None:
        return expected_sizes(key, data)
    with _named_damages(info.title, info.how_to_get):
        return info.excerpt_sizes(data)


@contextmanager
def _named_damages(what: str, how_to_get: str) -> Iterator[None]:
    """Turn errors of readers on damaged files into a DataError that says what to do."""
    try:
        yield
    except DAMAGES as error:
        why = f"{error}" if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        if isinstance(error, FileNotFoundError) and error.filename:
            why = f"{error.filename} is missing"
        raise DataError(f"{what}: {why}. {how_to_get}") from error
