"""Unpack tar and zip archives that are not trusted.

No path leaves the folder, no link leads out of it, no device or other special file is made, and
neither the declared nor the written size passes a limit. Links inside the folder are left out: no
published set needs one. An archive in an archive is unpacked to a folder of its name.
"""

import io
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath
from typing import IO
from zlib import error as ZlibError

from pretrain.running import stop
from pretrain.running.atomic_files import explain_write_errors
from transfer.datasets.expected import DataError
from transfer.running.console import Progress, progress

TAR_ENDINGS = (".tar", ".tar.gz", ".tgz")
ENDINGS = (*TAR_ENDINGS, ".zip")
CHUNK = 1 << 20
MOST_GROWTH = 20
"""Unpacked bytes per byte of the archive; annotations in JSON grow about fivefold."""
ALWAYS_ALLOWED = 64 << 20
MOST_FILES = 5_000_000
THREADS = 8
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    BadGzipFile,
    EOFError,
    ZlibError,
    NotImplementedError,
)
"""Errors of the standard library on damaged archives, and on compressions that it lacks."""


class ArchiveError(DataError):
    """Error for an archive that is damaged, or that must not be unpacked."""


@dataclass
class _Budget:
    """Bytes and files that an archive may still write, shared by its threads."""

    archive: str
    bytes_left: int
    shown: Progress
    files_left: int
    declared_left: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def declare(self, num_bytes: int) -> None:
        """Subtract a file before it is written; ArchiveError if it does not fit."""
        with self._lock:
            self.declared_left -= max(0, num_bytes)
            self.files_left -= 1
            if num_bytes < 0 or self.declared_left < 0 or self.files_left < 0:
                raise self._error("declares")

    def write(self, num_bytes: int) -> None:
        """Subtract written bytes; ArchiveError if they are too many."""
        with self._lock:
            self.bytes_left -= num_bytes
            if self.bytes_left < 0:
                raise self._error("holds")

    def count_file(self) -> None:
        """Count a finished file for the display."""
        with self._lock:
            self.shown.add(1)
            self.shown.total = max(self.shown.total, self.shown.done)

    def _error(self, verb: str) -> ArchiveError:
        return ArchiveError(
            f"{self.archive}: it {verb} more than {MOST_GROWTH} times its own size, or more than "
            f"{MOST_FILES:,} files; no published set does, so it is not unpacked"
        )


@dataclass(frozen=True)
class _Job:
    """Place that one archive is unpacked to, and its limits."""

    archive: str
    folder: Path
    nested: str
    budget: _Budget

    def is_nested(self, name: str) -> bool:
        """Return whether a member is an archive that is unpacked as well."""
        return bool(self.nested) and fnmatch(name, self.nested)


def is_archive(name: str) -> bool:
    """Return whether a file of this name is unpacked."""
    return name.lower().endswith(ENDINGS)


def unpack(file: Path, folder: Path, nested: str = "") -> None:
    """Unpack an archive; ArchiveError names what is wrong with it. Files that exist are replaced.

    nested: pattern of archives inside it, which are unpacked as well, several at a time.
    """
    with explain_write_errors(folder, "--data"), progress("unpack", file.name, 0, "files") as shown:
        most = MOST_GROWTH * file.stat().st_size + ALWAYS_ALLOWED
        budget = _Budget(file.name, most, shown, files_left=MOST_FILES, declared_left=most)
        job = _Job(file.name, folder, nested, budget)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if file.name.lower().endswith(".zip"):
                _unpack_zip(file, job)
            else:
                _unpack_tar_file(file, job)
        except BROKEN as error:
            raise ArchiveError(
                f"{file}: it is damaged or cut off ({type(error).__name__}: {error}); remove it, "
                "then the same command gets it again"
            ) from error


def _unpack_tar_file(file: Path, job: _Job) -> None:
    """Unpack a tar file; archives inside it side by side, each with a reader of its own."""
    inner: list[tarfile.TarInfo] = []
    with tarfile.open(file, "r:*") as archive:
        plain = isinstance(archive.fileobj, io.BufferedReader)
        for member in _members(archive):
            if plain and member.isreg() and job.is_nested(member.name):
                inner.append(member)
            else:
                _unpack_member(archive, member, job)
    if inner:
        with ThreadPoolExecutor(THREADS) as threads:
            for _ in threads.map(lambda member: _unpack_inner(file, member, job), inner):
                stop.exit_if_requested()


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield each member and forget it: the list of those of Places365 would take gigabytes."""
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # the stubs lack it
        yield member


def _unpack_inner(file: Path, member: tarfile.TarInfo, job: _Job) -> None:
    if stop.is_requested():
        return
    with tarfile.open(file, "r:") as own:
        _unpack_member(own, member, job)


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, job: _Job) -> None:
    stop.exit_if_requested()
    if member.isdir():
        _inside(job, member.name).mkdir(parents=True, exist_ok=True)
    elif member.issym() or member.islnk():
        beside = PurePosixPath(member.name).parent if member.issym() else PurePosixPath()
        _refuse_link_out(job, member.name, beside, member.linkname)
    elif member.isreg():
        content = archive.extractfile(member)
        if content is None:
            raise ArchiveError(f"{job.archive}: {member.name} has no content")
        with content:
            _write_member(content, member.name, member.size, job)
    else:
        raise ArchiveError(
            f"{job.archive}: {member.name} is a device or another special file; it is not unpacked"
        )


def _unpack_zip(file: Path, job: _Job) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            stop.exit_if_requested()
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.flag_bits & 1:
                raise ArchiveError(
                    f"{file}: it needs a password; unpack it with "
                    "`UNZIP_DISABLE_ZIPBOMB_DETECTION=TRUE unzip -P PASSWORD`, then "
                    "get-data --link FOLDER"
                )
            if member.is_dir():
                _inside(job, member.filename).mkdir(parents=True, exist_ok=True)
            elif stat.S_ISLNK(kind):
                target = archive.read(member)[:4096].decode(errors="replace")
                beside = PurePosixPath(member.filename).parent
                _refuse_link_out(job, member.filename, beside, target)
            elif kind in (0, stat.S_IFREG):
                with archive.open(member) as content:
                    _write_member(content, member.filename, member.file_size, job)
            else:
                raise ArchiveError(f"{file}: {member.filename} is a special file")


def _write_member(content: IO[bytes], name: str, num_bytes: int, job: _Job) -> None:
    """Write one file, or unpack it if it is an archive of the pattern."""
    target = _inside(job, name)
    if "__MACOSX" in target.parts:  # what macOS adds to zip files
        return
    if job.is_nested(name):
        _unpack_nested(content, target, job)
        return
    job.budget.declare(num_bytes)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as output:
        while chunk := content.read(CHUNK):
            job.budget.write(len(chunk))
            output.write(chunk)
    job.budget.count_file()


def _unpack_nested(content: IO[bytes], target: Path, job: _Job) -> None:
    """Unpack a tar file inside an archive to a folder of its name, which appears when complete."""
    folder = target.with_name(target.name.partition(".")[0])
    if folder.is_dir():  # an earlier run has unpacked it
        return
    partial = folder.with_name(f".{folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    inner = _Job(f"{job.archive}: {target.name}", partial, "", job.budget)
    with tarfile.open(fileobj=content, mode="r|*") as archive:
        for member in _members(archive):
            _unpack_member(archive, member, inner)
    partial.rename(folder)


def _inside(job: _Job, name: str) -> Path:
    """Return the path of a member below the folder; ArchiveError if it would be elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise ArchiveError(f"{job.archive}: the path {name!r} leads out of its folder")
    return job.folder / path


def _refuse_link_out(job: _Job, name: str, beside: PurePosixPath, target: str) -> None:
    _inside(job, name)
    depth = 0
    for part in (beside / target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0 or PurePosixPath(target).is_absolute():
            raise ArchiveError(f"{job.archive}: the link {name!r} leads out of its folder")
