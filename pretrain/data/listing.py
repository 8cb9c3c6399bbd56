"""Lists the images of a folder before a run; follows links.

If a file is later replaced by an image of another size, this is noticed when it is read.
"""

import os
from collections.abc import Iterable
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pretrain.data.images import DataError, TrainingImages
from pretrain.pixels.decoding import image_sizes, open_error
from pretrain.pixels.image_names import (
    IMAGE_SUFFIXES,
    MAX_NAMES,
    count_suffixes,
    has_image_suffix,
    is_hidden,
    split_of_folder,
)


def walk(folder: Path) -> tuple[list[str], list[str]]:
    """Return the files of a folder and what cannot be read, as relative paths.

    Links are followed, and each real folder is listed once: real folders come before links to
    folders, and both are sorted by name. Hidden files and files of operating systems are skipped.
    Broken links and folders without permission to list them cannot be read.
    """
    paths: list[str] = []
    unreadable: list[str] = []
    visited = set[tuple[int, int]]()

    def fail(error: OSError) -> None:
        unreadable.append(os.path.relpath(error.filename, folder))

    for root, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        status = os.stat(root)  # noqa: PTH116
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        prefix = "" if Path(root) == folder else f"{os.path.relpath(root, folder)}/"
        for name in files:
            if is_hidden(name):
                continue
            # a broken or circular link may stand for a class; images are opened later
            if has_image_suffix(name) or os.path.exists(f"{root}/{name}"):  # noqa: PTH110
                paths.append(f"{prefix}{name}")
            else:
                unreadable.append(f"{prefix}{name}")
        visible = [name for name in folders if not is_hidden(name)]
        folders[:] = sorted(visible, key=lambda name: (os.path.islink(f"{root}/{name}"), name))  # noqa: PTH114
    return paths, unreadable


def find_images(folder: Path, *, tolerated: int = 0) -> TrainingImages:
    """Return all images in a folder, sorted by name, except unreadable ones.

    A broken link counts as an unreadable image, since it may represent a whole class; so does a
    folder that cannot be listed. Raises DataError if it is not a folder, or contains no images or
    several splits of a dataset. Also raises it, with the names, if more images are unreadable than
    tolerated.
    """
    if not folder.is_dir():
        raise DataError(f"--data {folder}: not a folder. Pass the folder with the training images")
    files, candidates = walk(folder)
    skipped = [path for path in files if not has_image_suffix(path)]
    candidates += [path for path in files if has_image_suffix(path)]
    remark = ""
    if skipped:
        remark = (
            f"{len(skipped)} files are skipped because of their suffix: {count_suffixes(skipped)}"
        )
    if not candidates:
        raise DataError(
            f"{folder} and its subfolders contain no images ({', '.join(IMAGE_SUFFIXES)}). {remark}"
        )
    require_one_split(folder, candidates)
    # sort by folder, like Path: no name contains a byte that is smaller than the separator
    candidates.sort(key=lambda path: path.replace("/", "\0"))
    sizes = image_sizes([f"{folder}/{path}" for path in candidates])
    readable: NDArray[np.bool_] = sizes[:, 0] > 0
    names = [path.encode(errors="surrogateescape") for path in compress(candidates, readable)]
    heights, widths = (np.ascontiguousarray(column) for column in sizes[readable].T)
    unreadable = tuple(compress(candidates, ~readable))
    if len(unreadable) > tolerated:
        reasons = [f"{path}: {open_error(f'{folder}/{path}')}" for path in unreadable[:MAX_NAMES]]
        ellipsis = ", ..." if len(unreadable) > MAX_NAMES else ""
        raise DataError(
            f"{folder}: {len(unreadable)} of {len(candidates)} images are unreadable "
            f"({', '.join(reasons)}{ellipsis}), {tolerated} tolerated: "
            f"replace them or pass --tolerated-images {len(unreadable)}"
        )
    return TrainingImages(
        folder, np.array(names, dtype=np.bytes_), heights, widths, unreadable, remark
    )


def require_one_split(folder: Path, paths: Iterable[str]) -> None:
    """Raise DataError if a folder contains several splits.

    For example, train/ and val/. A single name, such as the class "train" of CIFAR-100, is not a
    split.
    """
    splits: dict[str, dict[str, str]] = {}  # parent -> split -> folder
    for path in sorted({path.rpartition("/")[0] for path in paths}):
        folders = path.split("/")
        for depth, name in enumerate(folders):
            if split := split_of_folder(name):
                siblings = splits.setdefault("/".join(folders[:depth]), {})
                siblings.setdefault(split, "/".join(folders[: depth + 1]))
    for paths_of_splits in splits.values():
        if len(paths_of_splits) > 1:
            names = ", ".join(paths_of_splits.values())
            choice = paths_of_splits.get("train") or paths_of_splits["val"]
            raise DataError(
                f"{folder} contains several splits of a dataset ({names}). Pass one of them: "
                f"--data {folder / choice}. To train on several, link them under other names into "
                "one folder"
            )


def find_styles(folder: Path) -> tuple[Path, ...]:
    """Return the folders of a style bank, sorted by name.

    Each contains a copy of every image under the same name.
    """
    styles = tuple(sorted(style for style in folder.glob("*/") if not is_hidden(style.name)))
    if not styles:
        raise DataError(
            f"--style-bank {folder}: no folders. It must contain a folder for each style"
        )
    return styles
