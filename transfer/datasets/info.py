"""Descriptions of datasets and of their download sources.

A source is one folder in the data folder, downloaded as a unit. Several datasets may read it: both
ImageNet-1k and ImageNet-100 read `imagenet/`. Sizes and checksums that are not published are
omitted, and `get-data` says so. The facts are in facts.yaml.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from pretrain.running.reading import read_yaml
from transfer.datasets.expected import Sizes

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.datasets.scenes import Scenes
    from transfer.datasets.segmented import Segmented


Access = Literal["download", "registration", "password", "no home"]


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One published file: a tar or zip archive, or another file."""

    name: str
    """Usual name of the file."""
    urls: tuple[str, ...] = ()
    """URLs, tried in this order; empty for a manual download."""
    num_bytes: int
    """Size of the file."""
    exact: bool = True
    """False: only a rounded size is published, used only for planning."""
    checksum: str = ""
    """md5:HEX or sha256:HEX as published; required if there are URLs."""
    into: str = ""
    """Subfolder of the common unpacking folder for the content of this archive."""
    nested: str = ""
    """Pattern of nested archives, unpacked to folders of the same names."""
    optional: bool = False
    """True: with --from, the dataset is usable without it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One folder of files, and how to get it."""

    key: str
    """Name in `get-data` and of the folder of its archives."""
    folder: str
    """Folder in the data folder, created only when complete."""
    archives: tuple[Archive, ...]
    terms: str
    """License or the publisher's terms of use, in one line; "unknown" otherwise."""
    terms_url: str
    """Page that states the terms."""
    roots: tuple[str, ...] = ("",)
    """Possible paths among the unpacked files; the first existing one is used."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names in the archives -> names in the folder."""
    variants: tuple[tuple[Archive, ...], ...] = ()
    """Other archives of the same files, accepted instead of `archives`."""
    access: Access = "download"
    advice: str = ""
    """Instructions if the archives cannot be downloaded freely, or only slowly."""
    hub_copies: tuple[str, ...] = ()
    """Copies of a dataset whose publisher's links are dead.

    Each gives address and revision, the public suite that uses it, and the difference from the
    published dataset. This suite has never downloaded them.
    """
    arrange: Callable[[Path], None] | None = None
    """Sorts the unpacked files; may be interrupted and repeated."""
    checked_as: tuple[str, ...] = ()
    """Datasets that read the folder; one valid check means it is complete.

    Empty: the folder counts as complete.
    """
    finish: Callable[[Path], object] | None = None
    """Last step on the data folder, such as a conversion.

    It may be interrupted and repeated.
    """
    unneeded_with: str = ""
    """Path in the data folder that makes the source unnecessary."""

    def exists_in(self, data: Path) -> bool:
        """Return whether the folder has content or is unnecessary."""
        replaced = self.unneeded_with and (data / self.unneeded_with).exists()
        return bool(replaced) or has_content(data / self.folder)


AnySplit: TypeAlias = "Images | Scenes | Segmented"


@dataclass(frozen=True, kw_only=True)
class SmallVersion:
    """The generated version of a dataset: synthetic images in the published layout."""

    sizes: Sizes
    """Classes and images per split, as `small-data.json` stores them."""
    write: Callable[[Path, np.random.Generator], None] | None = None
    """Writes the dataset's folder to a data folder.

    None: the dataset only uses files of `needs`.
    """
    needs: tuple[str, ...] = ()
    """Datasets with small versions that it also reads; they are generated first."""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """One dataset: names, published counts, reader, instructions and small version."""

    title: str
    folder: str
    """Folder of the dataset in the data folder."""
    alternative_folder: str = ""
    """Folder of a second layout, used if `folder` is missing."""
    second_folder: str = ""
    """Another required folder."""
    list_file: str = ""
    """Required file in `folder` that lists images of another dataset."""
    num_classes: int
    """L, number of classes."""
    metric: Literal["top1", "mean_per_class", "mAP", "AP", "mIoU"]
    """AP: a detection dataset, read as `Scenes`; mIoU: segmentation, read as `Segmented`."""
    counts: Mapping[str, int]
    """Published number of images per split; 0: unpublished.

    The splits are train, val, trainval and test, or only test.
    """
    read: Callable[[Path, str, Sizes], AnySplit]
    """Reads a split from the data folder, given the expected sizes."""
    load_annotations: Callable[[Path, Path, bool], None] | None = None
    """Loads large annotation files of a data folder from a cache folder.

    Parses them and stores their arrays if they are not in the cache, unless the last argument is
    false. None: the annotations are small.
    """
    how_to_get: str
    """Instructions to download and unpack the dataset, shown in errors."""
    small: SmallVersion
    sources: tuple[Source, ...] = ()
    """Sources that `get-data` downloads; empty for generated files."""
    counts_of_parts: Callable[[Path], Mapping[str, int]] | None = None
    """Published images per split of the existing parts."""
    departures: Callable[[Path], Sequence[str]] = lambda data: ()
    """Returns one sentence per deviation of the test data from the papers.

    Every record stores these sentences.
    """
    known_classes: Callable[[], Sequence[str]] = tuple
    """Returns the published class names, for errors about missing classes."""
    image_names: str = ""
    """Regular expression of file names that identify an image in any folder.

    Empty: only the path identifies an image.
    """
    draw: str = ""
    """Name of the draw of training and test images.

    Its list of images is stored.
    """

    def exists_in(self, data: Path) -> bool:
        """Return whether all required folders and files exist."""
        return self.missing_path(data) is None

    def missing_path(self, data: Path) -> Path | None:
        """Return the first missing or empty folder or list; None if the dataset exists."""
        folders = (self.folder, self.alternative_folder)
        if not any(folder and has_content(data / folder) for folder in folders):
            return data / self.folder
        if self.list_file and not (data / self.folder / self.list_file).is_file():
            return data / self.folder / self.list_file
        second = data / self.second_folder
        return None if has_content(second) else second


def has_content(folder: Path) -> bool:
    """Return whether a folder exists and is not empty."""
    if not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        return any(True for _ in entries)


def split_counts(train: int, val: int, test: int) -> Mapping[str, int]:
    """Return the images per split; trainval contains train and val."""
    return {"train": train, "val": val, "trainval": train + val, "test": test}


def generated_sizes(classes: int, train: int, val: int, test: int) -> Sizes:
    """Return the sizes of a small version, given its classes and images per split."""
    return Sizes(classes=classes, counts=split_counts(train, val, test), drawn=True)


@cache
def facts() -> dict[str, Any]:
    """Return the content of facts.yaml, with tuples instead of lists."""
    content: dict[str, Any] = _tuples(read_yaml(Path(__file__).with_name("facts.yaml")))
    return content


def _tuples(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _tuples(value) for key, value in content.items()}
    return tuple(map(_tuples, content)) if isinstance(content, list) else content


def source(key: str, **functions: Any) -> Source:
    """Return the source with this key.

    functions: fields that are code, such as `arrange`. Raises TypeError for a missing or unknown
    field.
    """
    entry = facts()["sources"][key]
    groups = (entry["archives"], *entry.get("variants", ()))
    archives, *variants = (tuple(Archive(**archive) for archive in group) for group in groups)
    lists = {"archives": archives, "variants": tuple(variants)}
    return Source(key=key, **(entry | lists), **functions)


def info(key: str, **functions: Any) -> DatasetInfo:
    """Return the description of the dataset with this key.

    functions: fields that are code: `read` and `small`, often `sources`. Raises TypeError for a
    missing or unknown field.
    """
    entry = facts()["datasets"][key]
    counts = entry["counts"]
    if "train" in counts:
        counts = split_counts(**counts)
    return DatasetInfo(**(entry | {"counts": counts}), **functions)
