"""Size and checksum of a file, compared with those that were published."""

import hashlib
import os
import time
from pathlib import Path

from transfer.datasets.catalog import DATASETS, expected_sizes
from transfer.datasets.source import Archive
from transfer.running.console import progress

CHUNK = 1 << 20


def display_unit(num_bytes: int) -> tuple[int, str]:
    """Return the bytes and the name of the unit in which the progress of a file is shown."""
    return (1_000, "kB") if num_bytes < 10_000_000 else (1_000_000, "MB")


def mismatch(archive: Archive, file: Path) -> str:
    """Return how a file differs from the published one; empty if it does not.

    Without a published size and checksum nothing can differ.
    """
    found = file.stat().st_size
    if archive.exact and found != archive.num_bytes:
        return f"{found:,} bytes, {archive.num_bytes:,} expected"
    if not archive.checksum:
        return ""
    kind, _, expected = archive.checksum.partition(":")
    computed = _hash(file, kind, found)
    return "" if computed == expected else f"{kind} {computed}, {expected} expected"


def _hash(file: Path, kind: str, num_bytes: int) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    seen = 0
    size, unit = display_unit(num_bytes)
    name = file.name.removesuffix(".part")
    with file.open("rb") as content, progress("verify", name, num_bytes // size, unit) as shown:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            before, seen = seen, seen + len(chunk)
            shown.add(seen // size - before // size)
    return digest.hexdigest()


FOLDER = ".checked"
"""Folder, below the data folder, with a file for each set that was whole."""


def last_check(key: str, data: Path) -> str:
    """Return the day of the check of a set whose folders are as they were then; else nothing."""
    file = data / FOLDER / key
    if not file.exists() or file.read_text() != _state(key, data):
        return ""
    return time.strftime("%Y-%m-%d", time.localtime(file.stat().st_mtime))


def remember(key: str, data: Path) -> None:
    """Note that a set was whole just now; half of this note, after a kill, is none."""
    (data / FOLDER).mkdir(exist_ok=True)
    (data / FOLDER / key).write_text(_state(key, data))


def _state(key: str, data: Path) -> str:
    """Return a hash of what is expected of a set, and of when each of its folders changed."""
    info = DATASETS[key]
    digest = hashlib.sha256(repr(expected_sizes(key, data)).encode())
    names = {info.folder, info.alternative_folder, info.second_folder}
    for name in sorted((names | {source.folder for source in info.sources}) - {""}):
        for folder, inner, _ in os.walk(data / name):
            inner.sort()
            digest.update(f"{folder} {Path(folder).stat().st_ctime_ns}\n".encode())
    return digest.hexdigest()
