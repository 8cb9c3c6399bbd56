"""Images kept in one folder per class."""

import os
from collections.abc import Sequence
from pathlib import Path

from transfer.datasets.expected import DataError
from transfer.datasets.images import Images, image_files

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def class_names(folder: Path) -> list[str]:
    """Return the subfolders in alphabetical order, without hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def read_class_folders(data: Path, folder: Path, classes: Sequence[str]) -> Images:
    """Return the images of these classes by class and name; an absent folder is an empty class."""
    names: list[str] = []
    labels: list[int] = []
    prefix = folder.relative_to(data).as_posix()
    for label, name in enumerate(classes):
        files = _image_names(folder / name)
        names += [f"{prefix}/{name}/{file}" for file in files]
        labels += [label] * len(files)
    if not names:
        raise DataError(f"{folder}: no image in any of its class folders")
    return image_files(data, names, labels, classes)


def _image_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                e.name
                for e in entries
                if e.name.lower().endswith(IMAGE_ENDINGS) and not e.name.startswith(".")
            )
    except FileNotFoundError:
        return []
