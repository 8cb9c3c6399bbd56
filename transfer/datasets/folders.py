"""The folders that a cell reads and writes: can they be written, can a row have this name?"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESERVED = (
    "records",
    "snapshots",
    "tables",
    "figures",
    "report",
    "reliability",
)
"""Names below the results folder that mean something else, or did in earlier versions."""
MOST_BYTES = 150
"""Longest name; files of curves add task, protocol and schedule, and a file name has 255 bytes."""


class FolderError(ValueError):
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
    return Path(os.environ.get("DATASETS", "datasets"))


def check_writable(folder: Path, option: str) -> None:
    """Raise FolderError unless a folder exists or can be created, and can be written.

    option: the command-line option that selects it. Nothing is created.
    """
    try:
        why = _why_not_writable(folder)
    except OSError as error:  # such as a folder above that may not be searched
        why = error.strerror or str(error)
    if why:
        raise FolderError(
            f"{option} {folder}: cannot be written ({why}); make it a folder that you may write, "
            f"or give another {option}"
        )


def _why_not_writable(folder: Path) -> str:
    """Return why a folder cannot be written; empty if it can."""
    existing = folder.absolute()
    while not (existing.exists() or existing.is_symlink()):
        existing = existing.parent
    if not existing.exists():
        return f"the link {existing} leads nowhere"
    if not existing.is_dir():
        return f"{existing} is a file"
    return "" if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is read-only for you"


def check_row_name(name: str, default: str) -> None:
    """Raise ValueError, with what to do, unless a name can be that of a row and of a folder.

    default: the row's name if none is given, such as the checkpoint's without its ending.
    """
    why = _why_unusable(name)
    if why and name == default:
        raise ValueError(f"the name {_shown(name)} {why}; give the row a --name")
    if why:
        raise ValueError(f"--name {_shown(name)} {why}; choose another")


def _why_unusable(name: str) -> str:
    """Return why a name cannot be that of a row; empty if it can."""
    if not name.strip():
        return "is empty"
    if any(character in name for character in "/\\|"):
        return "holds a slash, a backslash or a bar, but the row's folder and column are called so"
    if name.startswith((".", "-")):
        return f"starts with {name[0]!r}, like a hidden folder or an option"
    if not name.isprintable() or name != name.strip():
        return "holds characters that cannot be seen or are not UTF-8, or a space at its end"
    if len(name.encode()) > MOST_BYTES:
        return f"has {len(name.encode())} bytes, of which {MOST_BYTES} are allowed"
    if name.lower() in RESERVED:
        return f"means something else below the results, as do {', '.join(RESERVED)}"
    return ""


def _shown(name: str) -> str:
    """Return a name in quotes, shortened and without characters that cannot be printed."""
    text = ascii(name)
    return text if len(text) <= 80 else f"{text[:40]} ... {text[-20:]}"
