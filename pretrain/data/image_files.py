"""Paths of a million images in some 40 bytes each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ImageFiles(Sequence[Path]):
    """Paths of images below a folder, in their order; a path is made when it is asked for."""

    root: Path
    folders: tuple[str, ...]
    """Paths below the root of the folders that hold images; "" is the root."""
    folder_of: NDArray[np.int32]
    """(N,), place of each image's folder."""
    text: bytes
    """Names of all images, one after the other, as on the disk."""
    ends: NDArray[np.int64]
    """(N,), place in the text behind each name."""

    @staticmethod
    def of(root: Path, paths: Sequence[str]) -> "ImageFiles":
        """Pack paths below the root, which use / between folders, in their order."""
        number: dict[str, int] = {}
        folder_of = np.empty(len(paths), dtype=np.int32)
        ends = np.empty(len(paths), dtype=np.int64)
        names = []
        end = 0
        for place, path in enumerate(paths):
            folder, _, name = path.rpartition("/")
            content = name.encode(errors="surrogateescape")
            end += len(content)
            names.append(content)
            folder_of[place] = number.setdefault(folder, len(number))
            ends[place] = end
        return ImageFiles(root, tuple(number), folder_of, b"".join(names), ends)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, place: int) -> Path: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Path, ...]: ...
    def __getitem__(self, place: int | slice) -> Path | tuple[Path, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(*place.indices(len(self))))
        if not -len(self) <= place < len(self):
            raise IndexError(f"image {place} of {len(self)}")
        return self.root / self.below_root(place % len(self))

    def below_root(self, place: int) -> str:
        """Return the path of an image below the root, with / between folders."""
        start = int(self.ends[place - 1]) if place else 0
        # a name that is not UTF-8 keeps its bytes
        name = self.text[start : int(self.ends[place])].decode(errors="surrogateescape")
        folder = self.folders[self.folder_of[place]]
        return f"{folder}/{name}" if folder else name

    def take(self, places: NDArray[np.int64]) -> "ImageFiles":
        """Return the images at these places, in this order."""
        return ImageFiles.of(self.root, [self.below_root(int(place)) for place in places])

    @cached_property
    def top_folders(self) -> tuple[str, ...]:
        """First part of the path of each folder; "" for the root."""
        return tuple(folder.partition("/")[0] for folder in self.folders)
