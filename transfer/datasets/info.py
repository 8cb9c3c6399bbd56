"""The description of a data set and of its origin: all that is known of it without its files.

A source is one folder below the data folder that is obtained as a whole. Several sets may read it:
both ImageNet-1k and ImageNet-100 read `imagenet/`. A size or checksum that nobody published is
left out, and `get-data` says so. The facts stand in facts.yaml.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from transfer.datasets.expected import Sizes

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.datasets.scenes import Scenes
    from transfer.datasets.segmented import Segmented


Access = Literal["download", "registration", "password", "no home"]


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One published file: a tar or zip archive, or a file that is used as it is."""

    name: str
    """Usual name of the file."""
    urls: tuple[str, ...] = ()
    """Addresses, tried in this order; none for what each user must fetch."""
    num_bytes: int
    """Size of the file."""
    exact: bool = True
    """False: only a rounded size is published, which serves the plan alone."""
    checksum: str = ""
    """md5:HEX or sha256:HEX as published; an archive with addresses has one."""
    into: str = ""
    """Folder, below the one that all archives are unpacked to, for the content."""
    nested: str = ""
    """Pattern of archives inside it; each is unpacked to a folder of its name."""
    optional: bool = False
    """True: with --from, the set is usable without it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One folder of files, and how to get it."""

    key: str
    """Name in `get-data` and of the folder of its archives."""
    folder: str
    """Folder below the data folder, which appears when it is complete."""
    archives: tuple[Archive, ...]
    terms: str
    """License, or the publisher's words on the terms, in one line; "unknown" otherwise."""
    terms_url: str
    """Page that states the terms."""
    roots: tuple[str, ...] = ("",)
    """Places of the folder among the unpacked files; the first that exists is taken."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names in the archives -> names in the folder."""
    variants: tuple[tuple[Archive, ...], ...] = ()
    """Other archives of the same files, which a user may have in place of `archives`."""
    access: Access = "download"
    advice: str = ""
    """Instructions where the archives cannot be downloaded by everybody, or slowly."""
    arrange: Callable[[Path], None] | None = None
    """Sorts the unpacked files; may be interrupted and repeated."""
    checked_as: tuple[str, ...] = ()
    """Data sets one of whose checks tells that the folder is whole; none: it is taken for whole."""
    finish: Callable[[Path], object] | None = None
    """Last step on the data folder, such as a conversion; may be interrupted and repeated."""
    unneeded_with: str = ""
    """Path below the data folder that makes the source unnecessary."""

    def is_there(self, data: Path) -> bool:
        """Return whether the folder exists, or what makes it unnecessary."""
        replaced = self.unneeded_with and (data / self.unneeded_with).exists()
        return bool(replaced) or (data / self.folder).exists()


AnySplit: TypeAlias = "Images | Scenes | Segmented"


@dataclass(frozen=True, kw_only=True)
class SmallVersion:
    """The generated version of a data set: the published layout with drawn images."""

    sizes: Sizes
    """Classes and images per split, as `small-data.json` stores them."""
    write: Callable[[Path, np.random.Generator], None] | None = None
    """Writes the set's folder below a data folder. None: its files are all those of `needs`."""
    needs: tuple[str, ...] = ()
    """Sets whose small versions it reads as well; they are generated first."""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """One data set: names, published counts, reader, instructions and small version."""

    title: str
    folder: str
    """Folder of the set, below the data folder."""
    alternative_folder: str = ""
    """Folder of a second layout, which is read when the first is absent."""
    second_folder: str = ""
    """Another folder that is needed as well."""
    list_file: str = ""
    """File in `folder` that is needed as well, for a set that is a list of another's images."""
    num_classes: int
    """L."""
    metric: Literal["top1", "mean_per_class", "mAP", "AP", "mIoU"]
    """AP: a detection set, whose splits are `Scenes`; mIoU: a segmentation set, `Segmented`."""
    counts: Mapping[str, int]
    """Published images per split: train, val, trainval and test, or test alone. 0: unpublished."""
    read: Callable[[Path, str, Sizes], AnySplit]
    """Reads a split from the data folder; the sizes say how many images a drawn split takes."""
    load_annotations: Callable[[Path, Path, bool], None] | None = None
    """Loads large annotation files of a data folder from a cache folder; parses them and stores
    their arrays if they are not in it, unless the last argument is false. None: the annotations are
    small."""
    how_to_get: str
    """Instructions to download and unpack the set, which end every error about it."""
    small: SmallVersion
    sources: tuple[Source, ...] = ()
    """Folders of files that it reads, as `get-data` gets them; none if they are made here."""
    counts_of_parts: Callable[[Path], Mapping[str, int]] | None = None
    """Published images per split of the parts that are present, for a set published in parts."""
    excerpt_sizes: Callable[[Path], Sizes] | None = None
    """Returns the sizes by which an excerpt is read that small-data.json does not describe yet.
    None: the published ones serve."""
    departures: Callable[[Path], Sequence[str]] = lambda data: ()
    """Returns a sentence for each way in which the files are not all that the papers tested on;
    every record stores these sentences."""
    known_classes: Callable[[], Sequence[str]] = tuple
    """Returns class names that are known without the files, so that a missing class is named."""
    image_names: str = ""
    """Regular expression of published file names, which identify an image in any folder; empty:
    only the path does."""
    draw: str = ""
    """Name of the draw that decides what is trained and tested on; its list of images is stored."""

    def is_there(self, data: Path) -> bool:
        """Return whether the folders, and the list if there is one, exist."""
        return self.missing_path(data) is None

    def missing_path(self, data: Path) -> Path | None:
        """Return the first folder or list that is not there; None if the set is."""
        folders = (self.folder, self.alternative_folder)
        if not any(folder and (data / folder).is_dir() for folder in folders):
            return data / self.folder
        if self.list_file and not (data / self.folder / self.list_file).is_file():
            return data / self.folder / self.list_file
        second = data / self.second_folder
        return None if second.is_dir() else second


def split_counts(train: int, val: int, test: int) -> Mapping[str, int]:
    """Return the images per split; trainval is train and val together."""
    return {"train": train, "val": val, "trainval": train + val, "test": test}


@cache
def facts() -> dict[str, Any]:
    """Return the content of the file, with tuples in place of lists."""
    import yaml

    file = Path(__file__).with_name("facts.yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # five times as fast where it is there
    content: dict[str, Any] = _tuples(yaml.load(file.read_text(), loader))
    return content


def _tuples(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _tuples(value) for key, value in content.items()}
    return tuple(map(_tuples, content)) if isinstance(content, list) else content


def source(key: str, **functions: Any) -> Source:
    """Return the source of this key; `functions` are the fields that are code, such as `arrange`.

    TypeError names a field that is missing, or that no source has.
    """
    known = facts()["sources"][key]
    groups = (known["archives"], *known.get("variants", ()))
    archives, *variants = (tuple(Archive(**entry) for entry in group) for group in groups)
    lists = {"archives": archives, "variants": tuple(variants)}
    return Source(key=key, **(known | lists), **functions)


def info(key: str, **functions: Any) -> DatasetInfo:
    """Return the description of this key's set; `functions` are the fields that are code.

    These are `read` and `small`, often `sources`. TypeError names one that is missing or unknown.
    """
    known = facts()["datasets"][key]
    counts = known["counts"]
    if "train" in counts:
        counts = split_counts(**counts)
    return DatasetInfo(**(known | {"counts": counts}), **functions)
