"""The folders that a cell reads and writes: can they be written, can a row have this name?"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pretrain.running.errors import SuiteError

RESERVED = ("records", "snapshots", "tables", "figures", "report", "reliability")
"""Names below the results folder that mean something else, or did in earlier versions."""
MOST_BYTES = 150
"""Longest name; files of curves add task, protocol and schedule, and a file name has 255 bytes."""


class FolderError(SuiteError, ValueError):
    """Error for a folder of the request that cannot be written; it says what to do."""


@dataclass(frozen=True)
class Folders:
    """The three folders that a task may use, and what is known of the data."""

    data: Path
    """Folder of all data sets, one folder each."""
    cache: Path
    """Cache that all cells share; it may be deleted at any time."""
    work: Path
    """Working folder of this cell, with the state that a resumed run needs."""
    broken: frozenset[str] = frozenset()
    """Unreadable images that the user tolerates; they are left out."""
    classifier: Path | None = None
    """File of the classifier that another cell has trained and this one uses."""
    keep_crops: bool = False
    """Keep the pixels that features are made of in the cache, for later backbones."""
    reports: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Reports of the checked data sets, by key; every opened split must agree with them."""

    @property
    def lists(self) -> Path:
        """Folder, beside the cache, with the lists of drawn splits; these must not be deleted."""
        return self.cache.parent / "lists"


def data_folder() -> Path:
    """Return the folder of all data sets: $DATASETS, or ./datasets."""
    return Path(os.environ.get("DATASETS", "datasets")).expanduser()


def check_writable(folder: Path, option: str) -> None:
    """Raise FolderError unless a folder exists or can be created, and can be written.

    option: the command-line option that selects it. Nothing is created.
    """
    existing = folder.absolute()
    try:
        while not (existing.exists() or existing.is_symlink()):
            existing = existing.parent
        if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
            return
        why = "read-only for you" if existing.is_dir() else "this is no folder"
    except OSError as error:  # such as a folder above that may not be searched
        why = error.strerror or str(error)
    raise FolderError(
        f"{option} {folder}: cannot be written ({existing}: {why}); make it a folder that you "
        f"may write, or give another {option}"
    )


def check_row_name(name: str, default: str) -> None:
    """Raise ValueError, with what to do, unless a name can be that of a row and of a folder.

    default: the row's name if none is given, such as the checkpoint's without its ending.
    """
    readable = name.isprintable() and name == name.strip() and len(name.encode()) <= MOST_BYTES
    is_folder = name[:1] not in ("", ".", "-") and not set(name) & set("/\\|")
    if readable and is_folder and name.lower() not in RESERVED:
        return
    shown = ascii(name) if len(ascii(name)) <= 80 else f"{ascii(name)[:40]} ..."
    what = f"the name {shown}" if name == default else f"--name {shown}"
    way_out = "give the row a --name" if name == default else "choose another"
    raise ValueError(
        f"{what} cannot be that of a row and a folder; {way_out}, of at most {MOST_BYTES} bytes, "
        f"without slash, backslash, bar or space at an end, not beginning with . or -, and none of "
        f"{', '.join(RESERVED)}"
    )
