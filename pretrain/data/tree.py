"""The files of a folder at any depth, behind links too; each real folder is walked once.

Paths are strings below the folder: a set has a million of them, and a Path takes ten times the
room of its text.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


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
