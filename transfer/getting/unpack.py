"""Unpack tar and zip archives.

`tarfile.data_filter` checks each member: paths and links may not lead out of the folder, and
devices and other special files are refused. Links inside the folder are skipped, since no published
dataset needs one. A nested archive is unpacked to a folder with its name.
"""

import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from gzip import BadGzipFile
from pathlib import Path
from typing import IO
from zlib import error as ZlibError

from pretrain.running import stop
from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.console import Progress, progress
from transfer.datasets.expected import DataError

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    BadGzipFile,
    EOFError,
    ZlibError,
    NotImplementedError,
)
"""Errors of the standard library for damaged archives and unsupported compressions."""
Members = Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]


def is_archive(name: str) -> bool:
    """Return whether a file with this name is unpacked."""
    return name.lower().endswith(SUFFIXES)


def unpack(file: Path, folder: Path, nested: str = "") -> None:
    """Unpack an archive, replacing existing files.

    nested: pattern of archives inside it that are unpacked, too. Raises DataError if the archive is
    damaged.
    """
    with explain_write_errors(folder, "--data"), progress("unpack", file.name, 0, "files") as bar:
        try:
            if file.name.lower().endswith(".zip"):
                with zipfile.ZipFile(file) as zipped:
                    _write(_zip_members(zipped), folder, nested, bar)
            else:
                with tarfile.open(file, "r:*") as archive:
                    _write(_tar_members(archive), folder, nested, bar)
        except BROKEN as error:
            raise DataError(
                f"{file}: damaged or truncated ({type(error).__name__}: {error}). Remove it and "
                "run the same command to get it again"
            ) from error


def _write(members: Members, folder: Path, nested: str, bar: Progress) -> None:
    """Write the members of an archive; unpack nested archives."""
    folder.mkdir(parents=True, exist_ok=True)
    for declared, content in members:
        stop.exit_if_requested()
        try:
            member = tarfile.data_filter(declared, str(folder))
        except tarfile.FilterError as error:
            raise DataError(f"{bar.subject}: {error}; it is not unpacked") from error
        target = folder / member.name
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
        elif content is not None and "__MACOSX" not in target.parts:  # macOS adds it to zip files
            with content:
                if nested and fnmatch(member.name, nested):
                    _unpack_nested(content, target, bar)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as output:
                        shutil.copyfileobj(content, output)
            bar.add(1)


def _unpack_nested(content: IO[bytes], target: Path, bar: Progress) -> None:
    """Unpack a tar file to a folder with its name, when complete."""
    folder = target.with_name(target.name.partition(".")[0])
    if folder.is_dir():  # an earlier run has unpacked it
        return
    partial = folder.with_name(f".{folder.name}.partial")
    with tarfile.open(fileobj=content, mode="r|*") as archive:
        _write(_tar_members(archive), partial, "", bar)
    partial.rename(folder)


def _tar_members(archive: tarfile.TarFile) -> Members:
    # discard each member: a list of all members of Places365 would take gigabytes
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # the stubs lack it
        yield member, archive.extractfile(member) if member.isreg() else None


def _zip_members(archive: zipfile.ZipFile) -> Members:
    for entry in archive.infolist():
        if entry.flag_bits & 1:
            raise DataError(
                f"{archive.filename}: it needs a password; `UNZIP_DISABLE_ZIPBOMB_DETECTION=TRUE "
                "unzip -P PASSWORD` unpacks it; move the result into the data folder"
            )
        member = tarfile.TarInfo(entry.filename)
        member.size = entry.file_size
        if entry.is_dir():
            member.type = tarfile.DIRTYPE
        # entries marked as links or devices are written as plain files
        yield member, archive.open(entry) if member.isreg() else None
