"""Folders that an evaluation uses; checks of folders and row names."""

import os
from dataclasses import dataclass
from pathlib import Path

from pretrain.running.errors import SuiteError

RESERVED = ("records", "snapshots", "tables", "figures", "report", "reliability")
"""Names in the results folder with another meaning, also in earlier versions."""
MAX_NAME_BYTES = 150
"""Maximum length of a row name.

File names have at most 255 bytes, and curve files append task, protocol and schedule.
"""


class FolderError(SuiteError, ValueError):
    """A requested folder cannot be written; the message says what to do."""


@dataclass(frozen=True)
class Folders:
    """The folders that a task uses, and the results of data checks."""

    data: Path
    """Folder with one folder per dataset."""
    cache: Path
    """Cache shared by all evaluations; it may be deleted at any time."""
    work: Path
    """Working folder of this evaluation, with the state to resume from."""
    broken: frozenset[str] = frozenset()
    """Unreadable images that the user tolerates; they are skipped."""
    classifier: Path | None = None
    """File of a classifier that another evaluation trained and this one uses."""
    keep_crops: bool = False
    """Whether to cache the crops for later backbones."""

    @property
    def lists(self) -> Path:
        """Folder of the lists of drawn splits, next to the cache; do not delete it."""
        return self.cache.parent / "lists"


def data_folder() -> Path:
    """Return the folder of all datasets: $DATASETS, or ./datasets."""
    return Path(os.environ.get("DATASETS", "datasets")).expanduser()


def check_writable(folder: Path, option: str) -> None:
    """Raise FolderError unless a folder can be written or created.

    option: the command-line option that selects it. Nothing is created.
    """
    existing = folder.absolute()
    try:
        while not (existing.exists() or existing.is_symlink()):
            existing = existing.parent
        if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
            return
        reason = "no write permission" if existing.is_dir() else "not a folder"
    except OSError as error:  # such as a parent folder without search permission
        reason = error.strerror or str(error)
    raise FolderError(
        f"{option} {folder}: cannot be written ({existing}: {reason}). Make it a folder with write "
        f"permission, or pass another {option}"
    )


def check_row_name(name: str, default: str) -> None:
    """Raise ValueError unless a name is valid for rows and folders.

    default: the name if none is given, such as the checkpoint's file name without its suffix.
    """
    readable = name.isprintable() and name == name.strip() and len(name.encode()) <= MAX_NAME_BYTES
    is_folder = name[:1] not in ("", ".", "-") and not set(name) & set("/\\|")
    if readable and is_folder and name.lower() not in RESERVED:
        return
    subject = "the name" if name == default else "--name"
    raise ValueError(
        f"{subject} {name!a:.80} is not a valid name of a row and a folder; choose another --name. "
        f"At most {MAX_NAME_BYTES} bytes, without slash, backslash, bar, outer spaces or a leading "
        f". or -; these names are reserved: {', '.join(RESERVED)}"
    )
