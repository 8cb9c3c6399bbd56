"""Sets that an earlier run found whole: while their folders are unchanged they are not read again.

A folder changes with each file that appears in it, disappears or is replaced. What is written into
a file where it lies goes unnoticed here; `check-data`, and the check before each run, see it.
"""

import hashlib
import os
import time
from pathlib import Path

from transfer.datasets.catalog import DATASETS, expected_sizes

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
