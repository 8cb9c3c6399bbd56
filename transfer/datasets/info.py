"""What is known of a data set without looking at it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images
from transfer.datasets.scenes import Scenes
from transfer.datasets.segmented import Segmented

AnySplit = Images | Scenes | Segmented


def as_published(data: Path) -> Sequence[str]:
    """Nothing to tell."""
    return ()


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """One catalogued set."""

    key: str
    title: str
    folder: str
    """Below the data folder."""
    other_folder: str = ""
    """A second layout of the same set, read when the first is absent."""
    second_folder: str = ""
    """Of a set in two parts, both of which are needed."""
    listing: str = ""
    """File in its folder, of a set that is a list of another's images."""
    num_classes: int
    """L."""
    metric: Literal["top1", "mean_per_class", "mAP", "AP", "mIoU"]
    """AP: a detection set, whose splits are `Scenes`; mIoU: `Segmented`."""
    counts: Mapping[str, int]
    """Published images per split: train, val, trainval, test, or test alone; 0: nobody tells."""
    open: Callable[[Path, str, Sizes], AnySplit]
    how_to_get: str
    counts_of: Callable[[Path], Mapping[str, int]] | None = None
    """The counts, where they depend on which of the published parts were unpacked."""
    told_of: Callable[[Path], Sequence[str]] = as_published
    """A sentence for each way in which what is there is not all that the papers tested on; every
    record says them."""
    draw: str = ""
    """Name of the draw, where what is trained and tested on is drawn here; its list is stored."""

    def is_there(self, data: Path) -> bool:
        """Whether its folder exists, or the one of its other layout; and its list, if it is one."""
        folders = (self.folder, self.other_folder)
        first = any(folder and (data / folder).is_dir() for folder in folders)
        return first and (data / self.second_folder).is_dir() and self._listed(data)

    def absent(self, data: Path) -> Path:
        """The folder or list to name when the set is not there."""
        if not (data / self.folder).is_dir():
            return data / self.folder
        if not self._listed(data):
            return data / self.folder / self.listing
        return data / (self.second_folder or self.folder)

    def _listed(self, data: Path) -> bool:
        return not self.listing or (data / self.folder / self.listing).is_file()


def counted(train: int, val: int, test: int) -> Mapping[str, int]:
    """Images per split."""
    return {"train": train, "val": val, "trainval": train + val, "test": test}
