"""Unpack tar and zip archives that are not trusted.

`tarfile.data_filter` decides on each member: no path and no link leads out of the folder, no device
or other special file is made. Links inside the folder are left out: no published set needs one.
Declared sizes, beyond which neither library writes, pass no limit. An archive in an archive is
unpacked to a folder of its name.
"""

import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from gzip import BadGzipFile
from pathlib import Path
from typing import IO
from zlib import error as ZlibError

from pretrain.running import stop
from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.console import Progress, progress
from transfer.datasets.expected import DataError

ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
MOST_GROWTH = 20
"""Unpacked bytes per byte of the archive; annotations in JSON grow about fivefold."""
ALWAYS_ALLOWED = 64 << 20
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    BadGzipFile,
    EOFError,
    ZlibError,
    NotImplementedError,
)
"""Errors of the standard library on damaged archives, and on compressions that it lacks."""
Members = Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]


class ArchiveError(DataError):
    """Error for an archive that is damaged, or that must not be unpacked."""


@dataclass
class _Budget:
    """Bytes that an archive, with those inside it, may still declare."""

    archive: str
    bytes_left: int
    shown: Progress

    def take(self, num_bytes: int) -> None:
        self.bytes_left -= num_bytes
        if min(num_bytes, self.bytes_left) < 0:
            raise ArchiveError(
                f"{self.archive}: it holds more than {MOST_GROWTH} times its own size; no "
                "published set does, so it is not unpacked"
            )
        self.shown.add(1)


def is_archive(name: str) -> bool:
    """Return whether a file of this name is unpacked."""
    return name.lower().endswith(ENDINGS)


def unpack(file: Path, folder: Path, nested: str = "") -> None:
    """Unpack an archive; ArchiveError names what is wrong with it. Files that exist are replaced.

    nested: pattern of archives inside it, which are unpacked as well.
    """
    with explain_write_errors(folder, "--data"), progress("unpack", file.name, 0, "files") as shown:
        budget = _Budget(file.name, MOST_GROWTH * file.stat().st_size + ALWAYS_ALLOWED, shown)
        try:
            if file.name.lower().endswith(".zip"):
                with zipfile.ZipFile(file) as zipped:
                    _write(_zip_members(zipped), folder, nested, budget)
            else:
                with tarfile.open(file, "r:*") as archive:
                    _write(_tar_members(archive), folder, nested, budget)
        except BROKEN as error:
            raise ArchiveError(
                f"{file}: it is damaged or cut off ({type(error).__name__}: {error}); remove it, "
                "then the same command gets it again"
            ) from error


def _write(members: Members, folder: Path, nested: str, budget: _Budget) -> None:
    """Write the members of an archive, or unpack those that are archives of the pattern."""
    folder.mkdir(parents=True, exist_ok=True)
    for declared, content in members:
        stop.exit_if_requested()
        try:
            member = tarfile.data_filter(declared, str(folder))
        except tarfile.FilterError as error:
            raise ArchiveError(f"{budget.archive}: {error}; it is not unpacked") from error
        target = folder / member.name
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
        elif content is not None and "__MACOSX" not in target.parts:  # macOS adds it to zip files
            with content:
                if nested and fnmatch(member.name, nested):
                    _unpack_nested(content, target, budget)
                else:
                    budget.take(member.size)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as output:
                        shutil.copyfileobj(content, output)


def _unpack_nested(content: IO[bytes], target: Path, budget: _Budget) -> None:
    """Unpack a tar file to a folder of its name, which appears when it is complete."""
    folder = target.with_name(target.name.partition(".")[0])
    if folder.is_dir():  # an earlier run has unpacked it
        return
    partial = folder.with_name(f".{folder.name}.partial")
    with tarfile.open(fileobj=content, mode="r|*") as archive:
        _write(_tar_members(archive), partial, "", budget)
    partial.rename(folder)


def _tar_members(archive: tarfile.TarFile) -> Members:
    # each member is forgotten: the list of those of Places365 would take gigabytes
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # the stubs lack it
        yield member, archive.extractfile(member) if member.isreg() else None


def _zip_members(archive: zipfile.ZipFile) -> Members:
    for entry in archive.infolist():
        if entry.flag_bits & 1:
            raise ArchiveError(
                f"{archive.filename}: it needs a password; unpack it with "
                "`UNZIP_DISABLE_ZIPBOMB_DETECTION=TRUE unzip -P PASSWORD`, then "
                "get-data --link FOLDER"
            )
        member = tarfile.TarInfo(entry.filename)
        member.size = entry.file_size
        if entry.is_dir():
            member.type = tarfile.DIRTYPE
        # an entry marked as a link or device is written as the plain file that it is in the archive
        yield member, archive.open(entry) if member.isreg() else None
