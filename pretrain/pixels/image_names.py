"""Recognizes names of images, and of system or tool files."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif"),
    *(".ppm", ".pgm", ".tif", ".tiff"),
)
"""Suffixes of images, in lower or upper case."""
MAX_NAMES = 10
"""Maximum number of names in a message."""
SPLIT_NAME = re.compile(
    r"(?:(?P<train>train|training|trainval)|(?P<val>val|valid|validation|dev|eval)"
    r"|(?P<test>test|testing))(?:[ _-]?(?:\d+|set|images?|data|large|small|standard))*"
)
"""Names of folders of splits, in lower case."""
SYSTEM_NAMES = frozenset(
    [
        *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot"),
        *("$recycle.bin", "recycler", "system volume information", "thumbs.db", "desktop.ini"),
        *("__macosx", "network trash folder", "temporary items", "lost+found", "__pycache__"),
    ]
)
"""Names, in lower case, of files and folders of systems and tools.
Thumbnails, trash, snapshots and metadata of network storage, Windows, macOS, Linux and Python.
Plain "trash" is not included: it is a class of some datasets."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden.

    Names that a system or tool creates count, too. Hidden names start with a dot:
    .ipynb_checkpoints, .Trash-1000, ._photo.jpg of macOS.
    """
    return name.startswith(".") or name.lower() in SYSTEM_NAMES


def is_image(name: str) -> bool:
    """Return whether a file is an image by its name."""
    return has_image_suffix(name) and not is_hidden(name)


def has_image_suffix(name: str) -> bool:
    """Return whether a name or path has an image suffix."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def count_suffixes(names: Iterable[str]) -> str:
    """Return the suffixes of paths with counts: ".gif (24), no suffix (3)"."""
    return with_counts(Counter(PurePosixPath(n).suffix.lower() or "no suffix" for n in names))


def with_counts(counts: Mapping[str, int]) -> str:
    """Return the most frequent names with their counts."""
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    ellipsis = ", ..." if len(rows) > MAX_NAMES else ""
    return ", ".join(f"{name} ({count})" for name, count in rows[:MAX_NAMES]) + ellipsis


def split_of_folder(name: str) -> str:
    """Return the split that a folder's name indicates, or "".

    Splits are train, val and test. Examples of such names: training, val_256, test2017,
    valid-images.
    """
    match = SPLIT_NAME.fullmatch(name.lower())
    return (match.lastgroup or "") if match else ""
