"""Get one source, from its archives to its folder.

All work is done in `.getting/KEY/` of the data folder. `raw/` receives the unpacked files, and
`done/` marks the unpacked archives. `complete/` is a data folder with the finished dataset, which
is checked there and then moved to its final name. An interrupted run resumes after the last
archive.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.console import print_line
from pretrain.running.lock import wait_for_lock
from transfer.datasets.check import Report, check
from transfer.datasets.expected import SMALL_DATA, DataError
from transfer.datasets.info import Archive, Source
from transfer.getting.download import download, mismatch
from transfer.getting.unpack import is_archive, unpack

WORK = ".getting"
ARCHIVES = "archives"
"""Subfolder of the data folder for downloaded archives, one folder per source."""
ARCHIVE_DEPTH = 3
"""Maximum depth of subfolders in which the user's archives are searched."""


@dataclass(frozen=True, kw_only=True)
class Getting:
    """How sources are obtained."""

    data: Path
    local: Mapping[str, Sequence[Path]] | None = None
    """The user's files by name, without any download; None: archives are downloaded."""
    tolerate: int = 0
    """Maximum number of bad images (missing, extra, repeated or unreadable) per dataset."""

    def file(self, source: Source, archive: Archive) -> Path | None:
        """Return the user's or the downloaded file of an archive, or None.

        If several of the user's files have its name, the one with the published size is used:
        `images.tar.gz` may belong to another dataset.
        """
        if self.local is None:
            file = self.data / ARCHIVES / source.key / archive.name
            return file if file.exists() else None
        files = self.local.get(archive.name, ())
        return max(files, key=lambda f: f.stat().st_size == archive.num_bytes, default=None)

    def archives(self, source: Source) -> tuple[Archive, ...]:
        """Return the archives to unpack.

        With the user's files, these are the archives of the first complete variant.
        """
        for archives in (source.archives, *source.variants) if self.local is not None else ():
            present = tuple(archive for archive in archives if self._has(source, archive))
            if present and all(a in present for a in archives if not a.optional):
                return present
        return source.archives

    def missing(self, source: Source) -> list[Archive]:
        """Return the archives that must be obtained before unpacking."""
        work_folder = self.data / WORK / source.key
        if source.exists_in(self.data) or (work_folder / "complete" / source.folder).exists():
            return []
        return [a for a in self.archives(source) if not self._has(source, a)]

    def _has(self, source: Source, archive: Archive) -> bool:
        marker = self.data / WORK / source.key / "done" / archive.name
        return marker.exists() or self.file(source, archive) is not None


def files_by_name(folder: Path) -> dict[str, list[Path]]:
    """Return the files in a folder by name, upper levels first."""
    if not folder.is_dir():
        raise DataError(f"--from {folder}: not a folder. Pass the one that contains the archives")
    files: dict[str, list[Path]] = {}
    for depth in range(ARCHIVE_DEPTH + 1):
        for file in sorted(folder.glob("*/" * depth + "*")):
            if file.is_file():
                files.setdefault(file.name, []).append(file)
    return files


def get_source(source: Source, getting: Getting) -> Report | None:
    """Obtain one folder of files; return its check if one was made.

    Raises DataError if the user must fetch an archive, if one is damaged, or if the dataset is
    incomplete.
    """
    data, work_folder, report = getting.data, getting.data / WORK / source.key, None
    note = partial(print_line, "get-data", f"{source.key}: waiting for another process")
    with explain_write_errors(work_folder, "--data"):
        with wait_for_lock(work_folder / "lock", "--data", note):
            if not source.exists_in(data):  # another process may have obtained it
                staged = work_folder / "complete" / source.folder
                if not staged.exists():
                    _unpack_all(source, getting, work_folder)
                    _stage(source, work_folder / "raw", staged)
                report = _require_complete(source, getting, work_folder / "complete")
                (data / source.folder).parent.mkdir(parents=True, exist_ok=True)
                staged.rename(data / source.folder)
            if source.finish is not None:
                source.finish(data)
            # a process that waited may have removed it
            shutil.rmtree(work_folder, ignore_errors=True)
        with suppress(OSError):  # not empty while other datasets are being obtained
            work_folder.parent.rmdir()
    return report


def _unpack_all(source: Source, getting: Getting, work_folder: Path) -> None:
    """Unpack all remaining archives; download missing ones."""
    missing = [a for a in getting.missing(source) if getting.local is not None or not a.urls]
    if missing or not source.archives:
        names = ", ".join(archive.name for archive in missing)
        needed = f" get-data {source.key} --from FOLDER needs these files: {names}" if names else ""
        raise DataError(f"{source.key}: {source.advice}{needed}")
    for archive in getting.archives(source):
        marker = work_folder / "done" / archive.name
        if marker.exists():
            continue
        file = getting.file(source, archive)
        if file is None:
            file = getting.data / ARCHIVES / source.key / archive.name
            download(archive, file)
        elif reason := mismatch(archive, file):
            raise DataError(
                f"{file}: not the published file ({reason}). Remove it, or download it again"
            )
        target = work_folder / "raw" / archive.into
        if is_archive(archive.name):
            unpack(file, target, archive.nested)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / archive.name)
        marker.parent.mkdir(exist_ok=True)
        marker.touch()


def _stage(source: Source, raw: Path, staged: Path) -> None:
    """Sort the unpacked files, and move the dataset to `staged`."""
    if source.arrange is not None:
        source.arrange(raw)
    root = next((raw / root for root in source.roots if (raw / root).is_dir()), None)
    if root is None:
        raise DataError(
            f"{source.key}: the archives are unpacked in {raw}, but {source.roots[0]} is not in "
            f"them. Remove {raw.parent} to unpack them again"
        )
    for name, new_name in source.renamed.items():
        if (root / name).exists():  # otherwise an earlier run has renamed it
            (root / name).rename(root / new_name)
    staged.parent.mkdir(parents=True, exist_ok=True)
    root.rename(staged)


def _require_complete(source: Source, getting: Getting, folder: Path) -> Report | None:
    """Return the check of a finished dataset; raises DataError if it is incomplete."""
    small = getting.data / SMALL_DATA
    if small.exists():
        shutil.copyfile(small, folder / SMALL_DATA)
    if not source.checked_as:
        return None
    reports = []
    for key in source.checked_as:
        reports.append(check(key, folder, decode=False))
        if reports[-1].fit(getting.tolerate):
            return reports[-1]
    raise DataError(
        f"{source.key}: incomplete, so it stays in {folder / source.folder}:\n  "
        f"{reports[0].first_problems}\nRemove {folder.parent} to start again, or accept it with "
        f"--tolerate {max(1, reports[0].num_bad)}"
    )
