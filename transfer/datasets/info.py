"""The description of a data set: all that is known of it without its files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.source import Source

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.datasets.scenes import Scenes
    from transfer.datasets.segmented import Segmented

AnySplit: TypeAlias = "Images | Scenes | Segmented"


def no_departures(data: Path) -> Sequence[str]:
    """Return nothing: the files are all that the papers tested on."""
    return ()


def no_known_classes() -> Sequence[str]:
    """Return nothing: the class names are only known from the files."""
    return ()


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
    map_annotations: Callable[[Path, Path, bool], None] | None = None
    """Parses large annotation files of a data folder once, into the arrays of a cache folder; this
    process then reads the mapped arrays. If the last argument is false, it maps what is stored, and
    parses and writes nothing. None: the annotations are small."""
    how_to_get: str
    """Instructions to download and unpack the set, which end every error about it."""
    small: SmallVersion
    sources: tuple[Source, ...] = ()
    """Folders of files that it reads, as `get-data` gets them; none if they are made here."""
    counts_of_parts: Callable[[Path], Mapping[str, int]] | None = None
    """Published images per split of the parts that are present, for a set published in parts."""
    departures: Callable[[Path], Sequence[str]] = no_departures
    """Returns a sentence for each way in which the files are not all that the papers tested on;
    every record stores these sentences."""
    known_classes: Callable[[], Sequence[str]] = no_known_classes
    """Returns class names that are known without the files, so that a missing class is named."""
    draw: str = ""
    """Name of the draw that decides what is trained and tested on; its list of images is stored."""

    def is_there(self, data: Path) -> bool:
        """Return whether the folders, and the list if there is one, exist."""
        folders = (self.folder, self.alternative_folder)
        first = any(folder and (data / folder).is_dir() for folder in folders)
        return first and (data / self.second_folder).is_dir() and self._has_list(data)

    def missing_path(self, data: Path) -> Path:
        """Return the folder or list to name when the set is not there."""
        if not (data / self.folder).is_dir():
            return data / self.folder
        if not self._has_list(data):
            return data / self.folder / self.list_file
        return data / (self.second_folder or self.folder)

    def _has_list(self, data: Path) -> bool:
        return not self.list_file or (data / self.folder / self.list_file).is_file()


def split_counts(train: int, val: int, test: int) -> Mapping[str, int]:
    """Return the images per split; trainval is train and val together."""
    return {"train": train, "val": val, "trainval": train + val, "test": test}
