"""Which names in a folder are images, and which belong to a system or tool."""

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif"),
    *(".ppm", ".pgm", ".tif", ".tiff"),
)
"""Suffixes of images, in any case."""
SYSTEM_NAMES = frozenset(
    [
        *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot"),
        *("$recycle.bin", "recycler", "system volume information", "thumbs.db", "desktop.ini"),
        *("__macosx", "network trash folder", "temporary items", "lost+found", "__pycache__"),
    ]
)
"""Names, in lower case, of thumbnails, trash, snapshots and notes of network storage, of Windows,
macOS, Linux and Python. Plain "trash" is missing: it is a class of some sets."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is hidden, or is one that a system or tool makes.

    Hidden names begin with a dot: .ipynb_checkpoints, .Trash-1000, ._photo.jpg of macOS.
    """
    return name.startswith(".") or name.lower() in SYSTEM_NAMES


def is_image(name: str) -> bool:
    """Return whether a file is an image by its name."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not is_hidden(name)
