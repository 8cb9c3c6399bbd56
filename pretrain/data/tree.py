"""The files of a folder at any depth, behind links too; each real folder is walked once.

Paths are strings below the folder: a set has a million of them, and a Path takes ten times the
room of its text.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FolderState:
    """A real folder when it was listed; another state means other names in it."""

    path: str
    """Path that led there."""
    inode: int
    changed_ns: int
    """Change time (ctime); tar and cp -p restore only the time of modification."""


@dataclass
class Tree:
    """Contents of a folder, by the paths below it that lead there."""

    folder: Path
    names: dict[str, list[str]] = field(default_factory=dict)
    """Names of files, and of links to files, by the path of their folder; "" is the folder."""
    unreadable: list[str] = field(default_factory=list)
    """Links that lead nowhere, and folders that may not be listed."""
    repeated: list[str] = field(default_factory=list)
    """Links to folders, and folders behind links, that were walked under another name."""
    states: list[FolderState] = field(default_factory=list)
    """Every folder that was walked."""

    def files(self) -> Iterator[str]:
        """Yield the path of each file."""
        for folder, names in self.names.items():
            prefix = f"{folder}/" if folder else ""
            yield from (prefix + name for name in names)


def walk(folder: Path) -> Tree:
    """List a folder, following links; each real folder is walked once.

    A folder is listed by its own path rather than by a link to it. Among links the shorter path
    wins, then the first by name.
    """
    tree = Tree(folder)
    walked: set[tuple[int, int]] = set()
    links = [""]
    while links:
        next_links: list[str] = []
        for link in sorted(links, key=lambda path: (path.count("/"), path.split("/"))):
            if not _walk(tree, link, walked, next_links):
                tree.repeated.append(link)
        links = next_links
    return tree


def _walk(tree: Tree, below: str, walked: set[tuple[int, int]], links: list[str]) -> bool:
    """Add a folder's files to the tree and its links to folders to `links`.

    Return False, and add nothing, if the folder was walked before.
    """
    path = f"{tree.folder}/{below}" if below else str(tree.folder)
    place = Path(path).stat()
    if (place.st_dev, place.st_ino) in walked:
        return False
    walked.add((place.st_dev, place.st_ino))
    try:
        with os.scandir(path) as entries:
            found = list(entries)
    except PermissionError:
        tree.unreadable.append(below or ".")
        return True
    tree.states.append(FolderState(below, place.st_ino, place.st_ctime_ns))
    prefix = f"{below}/" if below else ""
    names = tree.names.setdefault(below, [])
    for entry in found:
        if entry.is_symlink():
            try:
                is_folder = stat.S_ISDIR(Path(entry.path).stat().st_mode)
            except OSError:  # it has no target, or links form a circle
                tree.unreadable.append(prefix + entry.name)
                continue
            if is_folder:
                links.append(prefix + entry.name)
            else:
                names.append(entry.name)
        elif entry.is_dir():
            if not _walk(tree, prefix + entry.name, walked, links):
                tree.repeated.append(prefix + entry.name)
        else:
            names.append(entry.name)
    return True


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
