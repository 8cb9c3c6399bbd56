"""One source from its archives to its folder, which appears under its name when it is whole.

All work is done in `.getting/KEY/` of the data folder: `raw/` takes what is unpacked, `done/` notes
the archives that are unpacked, and `whole/` is a data folder with the finished set, which is
checked there and then renamed. `linked/` is the same for links, which are made anew in each run.
Whatever ends a run, the next one goes on after the last archive, and removes what is left over.

A set that lies elsewhere is recognized by its content, whatever its folders are called: it holds
all parts of its source, at the published places or at those where other suites keep them.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.console import print_line
from pretrain.running.lock import wait_for_lock
from transfer.datasets.check import Report, check
from transfer.datasets.expected import SMALL_DATA, DataError
from transfer.datasets.images import class_names
from transfer.datasets.info import Archive, Source
from transfer.getting.download import download, mismatch
from transfer.getting.unpack import is_archive, unpack

WORK = ".getting"
ARCHIVES = "archives"
"""Folder, below the data folder, of downloaded archives, with one folder for each source."""


@dataclass(frozen=True, kw_only=True)
class Getting:
    """How sources are got."""

    data: Path
    local: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)
    """The user's archives: a file for each archive's name, by the key of the source."""
    found: Mapping[str, Path] = field(default_factory=dict)
    """Folders of sets that lie elsewhere and are linked, by the key of the source."""
    only_local: bool = False
    """Nothing is downloaded."""
    remove_archives: bool = False
    """Remove downloaded archives as soon as they are unpacked."""
    tolerate: int = 0
    """Missing, surplus, repeated or unreadable images that a set may have."""

    def archive_file(self, source: Source, archive: Archive) -> Path:
        """Return the user's file of an archive, or the one that a download writes."""
        own = self.local.get(source.key, {}).get(archive.name)
        return own or self.data / ARCHIVES / source.key / archive.name

    def is_unpacked(self, source: Source, archive: Archive) -> bool:
        """Return whether an earlier run has unpacked an archive, or finished the whole set."""
        work = self.data / WORK / source.key
        done = (work / "done" / archive.name).exists()
        return done or (work / "whole" / source.folder).exists()

    def absent(self, source: Source) -> list[Archive]:
        """Return the archives that are needed and not there."""
        if source.is_there(self.data) or source.key in self.found:
            return []
        return [
            archive
            for archive in source.archives
            if not self.archive_file(source, archive).exists()
            and not self.is_unpacked(source, archive)
            and not (archive.optional and self.only_local)
        ]

    def to_download(self, source: Source) -> list[Archive]:
        """Return the archives that would be downloaded."""
        absent = [] if self.only_local else self.absent(source)
        return absent if all(archive.urls for archive in absent) else []


def get_source(source: Source, getting: Getting) -> Report | None:
    """Bring one folder of files to its place; return its check if one was made.

    DataError if an archive must be fetched by the user, is damaged, or the set is incomplete.
    """
    data, work, report = getting.data, getting.data / WORK / source.key, None
    note = partial(print_line, "get-data", f"{source.key}: another process gets it; waiting")
    with explain_write_errors(work, "--data"):
        with wait_for_lock(work / "lock", "--data", note):
            if not source.is_there(data):  # else it was there before, or another process got it
                report = _assemble(source, getting, work)
            if source.finish is not None:
                source.finish(data)
            if getting.remove_archives and not getting.only_local:
                _remove_archives(source, data / ARCHIVES / source.key)
            shutil.rmtree(work, ignore_errors=True)  # a process that waited finds nothing
        with suppress(OSError):  # other sets are being got
            work.parent.rmdir()
    return report


def _assemble(source: Source, getting: Getting, work: Path) -> Report | None:
    """Unpack or link a set, check it and give it its name."""
    whole = work / ("linked" if source.key in getting.found else "whole")
    staged = whole / source.folder
    if source.key in getting.found:
        shutil.rmtree(whole, ignore_errors=True)
        link_set(source, getting.found[source.key], staged)
    elif not staged.exists():
        _unpack_all(source, getting, work)
        _stage(source, work / "raw", staged)
    report = _require_whole(source, getting, whole)
    (getting.data / source.folder).parent.mkdir(parents=True, exist_ok=True)
    staged.rename(getting.data / source.folder)
    return report


def _remove_archives(source: Source, folder: Path) -> None:
    for archive in source.archives:
        (folder / archive.name).unlink(missing_ok=True)
        (folder / f"{archive.name}.part").unlink(missing_ok=True)
    with suppress(OSError):  # never there, or not empty
        folder.rmdir()
        folder.parent.rmdir()


def _unpack_all(source: Source, getting: Getting, work: Path) -> None:
    """Unpack every archive that no earlier run has unpacked, downloading those that are absent."""
    _require_archives(source, getting)
    for archive in source.archives:
        file = getting.archive_file(source, archive)
        own = file in getting.local.get(source.key, {}).values()
        if getting.is_unpacked(source, archive):
            continue
        if file.exists():
            if why := mismatch(archive, file):
                raise DataError(
                    f"{file}: it is not the published file ({why}); remove it, or get it again"
                )
        elif getting.only_local:  # an optional archive that the user lacks
            continue
        else:
            download(archive, file)
        target = work / "raw" / archive.into
        if is_archive(archive.name):
            unpack(file, target, archive.nested)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / archive.name)
        (work / "done").mkdir(exist_ok=True)
        (work / "done" / archive.name).touch()
        if getting.remove_archives and not own:
            file.unlink()


def _require_archives(source: Source, getting: Getting) -> None:
    """Raise DataError that names every archive that the user must fetch."""
    absent = [a for a in getting.absent(source) if getting.only_local or not a.urls]
    if not absent and source.archives:
        return
    names = ", ".join(archive.name for archive in absent)
    if source.access == "download":
        raise DataError(f"{source.key}: --from has no {names}; without --from they are downloaded")
    command = f" Then: python -m transfer get-data {source.key} --from FOLDER, with {names}"
    raise DataError(f"{source.key}: {source.advice}" + (command if absent else ""))


def _stage(source: Source, raw: Path, staged: Path) -> None:
    """Sort the unpacked files and move them to a data folder of their own."""
    if source.arrange is not None:
        source.arrange(raw)
    root = find_all((source,), raw).get(source.key)
    if root is None:
        expected = ", ".join(part.path for part in source.parts if not part.optional)
        raise DataError(
            f"{source.key}: its archives are unpacked in {raw}, but no folder there has all of "
            f"{expected}; remove {raw.parent} to unpack them again"
        )
    move_parts(source, root)
    staged.parent.mkdir(parents=True, exist_ok=True)
    root.rename(staged)


def _require_whole(source: Source, getting: Getting, whole: Path) -> Report | None:
    """Return the check of a finished set before it is moved; DataError if it is incomplete."""
    small = getting.data / SMALL_DATA
    if small.exists():
        shutil.copyfile(small, whole / SMALL_DATA)
    if not source.checked_as:
        return None
    reports = []
    for key in source.checked_as:
        reports.append(check(key, whole, decode=False))
        if reports[-1].fit(getting.tolerate):
            return reports[-1]
    raise DataError(
        f"{source.key}: it is not whole, so it stays in {whole / source.folder}:\n  "
        f"{reports[0].first_problems}\nRemove {whole.parent} to begin again, or take it as it is "
        f"with --tolerate {max(1, reports[0].num_bad)}"
    )


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
