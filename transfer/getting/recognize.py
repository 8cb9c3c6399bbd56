"""Sets that lie elsewhere on the machine: recognized by their content, and linked.

The names of folders do not matter. A set is a folder that holds all parts of its source, at the
published places or at those where other suites keep them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from transfer.datasets.expected import DataError
from transfer.datasets.images import class_names
from transfer.datasets.info import Source

DEPTH = 6
"""Levels of folders that are searched."""
MOST_FOLDERS = 200
"""Folders with more subfolders hold classes, not sets; what is in them is not searched."""


def candidate_folders(root: Path) -> Iterator[Path]:
    """Yield a folder and those below it, nearer ones first, each once even if links lead to it."""
    level, seen = [root], set[Path]()
    for _ in range(DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            real = folder.resolve()
            if real not in seen:
                seen.add(real)
                yield folder
                with suppress(OSError):  # a folder that may not be read holds no set for this user
                    names = class_names(folder)
                    below += [folder / name for name in names] if len(names) <= MOST_FOLDERS else []
        level = below


def find_all(sources: Sequence[Source], folder: Path) -> dict[str, Path]:
    """Return the folder of each source that is found at or below a folder, by its key."""
    found: dict[str, Path] = {}
    for root in candidate_folders(folder):
        for source in sources:
            if source.key not in found and source.places_in(root) is not None:
                found[source.key] = root
        if len(found) == len(sources):
            break
    return found


def link_set(source: Source, root: Path, target: Path) -> None:
    """Write links to a found set, in the layout that its reader expects."""
    root = root.resolve()
    places = source.places_in(root) or {}
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.link is not None and source.link(root, places, target):
        return
    if all(path == place for path, place in places.items()):
        target.symlink_to(root)
        return
    moved = {name for path, place in places.items() if path != place for name in (path, place)}
    taken = {Path(name).parts[0] for name in moved}
    links = {target / path: root / place for path, place in places.items()}
    for entry in sorted(root.iterdir()):  # what the source does not list, too
        if entry.name not in taken:
            links.setdefault(target / entry.name, entry)
    for link, place in sorted(links.items()):
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)


def move_parts(source: Source, root: Path) -> None:
    """Move the parts of an unpacked set to where its reader expects them."""
    for path, place in (source.places_in(root) or {}).items():
        if path != place:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / place).rename(root / path)


ARCHIVE_DEPTH = 3
"""Levels of folders below the user's that are searched."""


def files_by_name(folder: Path) -> dict[str, list[Path]]:
    """Return the files at and below a folder by name."""
    if not folder.is_dir():
        raise DataError(f"--from {folder}: this is no folder; give the one that holds the archives")
    files: dict[str, list[Path]] = {}
    for depth in range(ARCHIVE_DEPTH + 1):
        for file in sorted(folder.glob("*/" * depth + "*")):
            if file.is_file():
                files.setdefault(file.name, []).append(file)
    return files


def with_local_variant(source: Source, files: Mapping[str, list[Path]]) -> Source:
    """Return the source with the first of its variants that the user has whole, else as it is."""
    for archives in (source.archives, *source.variants):
        required = [archive.name for archive in archives if not archive.optional]
        if required and all(name in files for name in required):
            return replace(source, archives=archives)
    return source


def local_archives(source: Source, files: Mapping[str, list[Path]]) -> dict[str, Path]:
    """Return the user's file for each archive of a source that is among the files, by its name.

    Of several files with one name, that of the published size is taken: `images.tar.gz` may be of
    another set.
    """
    chosen = {}
    for archive in source.archives:
        sizes = {file: file.stat().st_size for file in files.get(archive.name, ())}
        right = [file for file, size in sizes.items() if size == archive.num_bytes]
        if sizes:
            chosen[archive.name] = (right or list(sizes))[0]
    return chosen
