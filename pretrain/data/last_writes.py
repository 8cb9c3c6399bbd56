"""Notice of images that were changed while a run read them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pretrain.data.images import TrainingImages

FILE_BY_FILE = 100_000
"""Images of a set whose files are looked at one by one; a disk far away takes a ms for each. Of
larger sets the folders are: they tell which files were added, replaced or renamed, but not which
were overwritten."""


@dataclass(frozen=True)
class LastWrites:
    """Times at which the images of a run last changed (ctime); tar and cp -p do not restore it."""

    images: TrainingImages
    times: NDArray[np.int64]
    """Times in ns of all files, or of all folders of a large set; -1 for what is absent."""

    @staticmethod
    def now(images: TrainingImages) -> "LastWrites":
        """Take the times, before any image is read."""
        return LastWrites(images, _times(images))

    def changed(self) -> list[str]:
        """Return the names of files or folders that have changed, or were deleted, since then."""
        places = np.flatnonzero(_times(self.images) != self.times)
        return [_names(self.images, int(place)) for place in places]


def _times(images: TrainingImages) -> NDArray[np.int64]:
    if len(images) <= FILE_BY_FILE:
        return np.array([_time(file) for file in images.files], dtype=np.int64)
    folders = images.files.folders
    return np.array([_time(images.folder / folder) for folder in folders], dtype=np.int64)


def _names(images: TrainingImages, place: int) -> str:
    if len(images) <= FILE_BY_FILE:
        return images.files.below_root(place)
    return f"{images.files.folders[place]}/"


def _time(path: Path) -> int:
    try:
        return path.stat().st_ctime_ns
    except OSError:
        return -1
