"""Lists the images of a folder before a run. Links to folders are followed.

A file whose content is replaced by an image of another size under its old name is noticed when it
is read.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path, PurePosixPath

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
    with_counts,
)

ARCHIVE_SUFFIXES = (
    *(".tar", ".zip", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar"),
    *(".parquet", ".tfrecord", ".lmdb", ".h5", ".hdf5", ".npz", ".mdb"),
)
"""Suffixes of files that may hold many images."""


@dataclass(frozen=True)
class Tree:
    """Contents of a folder, by the paths below it that lead there."""

    files: list[str] = field(default_factory=list)
    """Files with any suffix, without hidden ones."""
    unreadable: list[str] = field(default_factory=list)
    """Links that lead nowhere, and folders that may not be listed."""
    repeated: list[str] = field(default_factory=list)
    """Links to folders, and folders behind links, that were walked under another name."""
    hidden: Counter[str] = field(default_factory=Counter)
    """Number of the hidden folders and images by name; "._*" stands for macOS's resource forks."""


def walk(folder: Path) -> Tree:
    """List a folder, following links; each real folder is walked once.

    Hidden files and folders, and those of systems, are counted but not listed.

    A folder is listed by its own path rather than by a link to it. Among links the shorter path
    wins, then the first by name.
    """
    tree, walked = Tree(), set[tuple[int, int]]()
    found_links = [""]

    def add(below: str) -> None:
        try:
            place = (folder / below).stat()
            if (place.st_dev, place.st_ino) in walked:
                tree.repeated.append(below)
                return
            walked.add((place.st_dev, place.st_ino))
            with os.scandir(folder / below) as scanned:
                entries = list(scanned)
        except PermissionError:
            tree.unreadable.append(below or ".")
            return
        for entry in entries:
            if is_hidden(entry.name):
                if has_image_suffix(entry.name) or os.path.isdir(entry.path):  # noqa: PTH112
                    tree.hidden["._*" if entry.name.startswith("._") else entry.name] += 1
                continue
            path = f"{below}/{entry.name}" if below else entry.name
            # no target, a circle, or a folder that may be listed but not entered
            if entry.is_symlink() and not os.path.exists(entry.path):  # noqa: PTH110
                tree.unreadable.append(path)
            elif not entry.is_dir():
                tree.files.append(path)
            elif entry.is_symlink():
                found_links.append(path)
            else:
                add(path)

    while found_links:
        links = sorted(found_links, key=lambda path: (path.count("/"), path.split("/")))
        found_links.clear()
        for link in links:
            add(link)
    return tree


def find_images(folder: Path, *, tolerated: int = 0) -> TrainingImages:
    """Return all images below a folder, sorted by name; those that do not open are left out.

    A link that leads nowhere is an unreadable image, since it may stand for a whole class, and so
    is a folder that may not be listed. Raises a DataError if it is no folder, holds no image or
    several splits of a set, or if more images are unreadable than tolerated; it names them.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; --data wants a folder of images")
    tree = walk(folder)
    candidates = [path for path in tree.files if has_image_suffix(path)] + tree.unreadable
    remarks = files_left_out(tree)
    if not candidates:
        kinds, more = ", ".join(IMAGE_SUFFIXES), "".join(f"; {line}" for line in remarks)
        raise DataError(f"{folder} holds no image ({kinds}) at any depth{more}")
    require_one_split(folder, candidates)
    # folder by folder, as paths are sorted: no name has a byte below the one between folders
    candidates.sort(key=lambda path: path.replace("/", "\0"))
    sizes = image_sizes([f"{folder}/{path}" for path in candidates])
    readable: NDArray[np.bool_] = sizes[:, 0] > 0
    names = [path.encode(errors="surrogateescape") for path in compress(candidates, readable)]
    heights, widths = (np.ascontiguousarray(column) for column in sizes[readable].T)
    unreadable = tuple(compress(candidates, ~readable))
    if len(unreadable) > tolerated:
        reasons = [f"{path}: {open_error(f'{folder}/{path}')}" for path in unreadable[:MAX_NAMES]]
        more = ", ..." if len(unreadable) > MAX_NAMES else ""
        raise DataError(
            f"{folder}: {len(unreadable)} of {len(candidates)} images are unreadable "
            f"({', '.join(reasons)}{more}), {tolerated} tolerated; "
            f"replace them or pass --tolerated-images {len(unreadable)}"
        )
    return TrainingImages(
        folder,
        np.array(names, dtype=np.bytes_),
        heights,
        widths,
        tuple(tree.repeated),
        unreadable,
        remarks,
    )


def files_left_out(tree: Tree) -> tuple[str, ...]:
    """Return a line for each reason why files are not among the images, with their number."""
    others = [path for path in tree.files if not has_image_suffix(path)]
    archives = sorted(path for path in others if path.lower().endswith(ARCHIVE_SUFFIXES))
    rest = [path for path in others if not path.lower().endswith(ARCHIVE_SUFFIXES)]
    hidden = with_counts(tree.hidden)
    lines = (
        (len(rest), "files are left out for their suffix", count_suffixes(rest)),
        (len(archives), "archives are not read, only unpacked images are", _first(archives)),
        (tree.hidden.total(), "hidden or system files and folders are left out", hidden),
    )
    return tuple(f"{number} {what}: {names}" for number, what, names in lines if number)


def require_one_split(folder: Path, paths: Iterable[str]) -> None:
    """Raise a DataError if one folder holds images of several splits, such as train/ and val/.

    A single name, such as the class "train" of CIFAR-100, is not a split.
    """
    parents = {PurePosixPath(path).parent for path in paths}
    folders = parents.union(*(parent.parents for parent in parents))
    splits: dict[PurePosixPath, dict[str, PurePosixPath]] = {}
    for path in sorted(folders, key=lambda path: (len(path.parts), path)):
        if split := split_of_folder(path.name):
            splits.setdefault(path.parent, {}).setdefault(split, path)
    for paths_of_splits in splits.values():
        if len(paths_of_splits) > 1:
            names = ", ".join(map(str, paths_of_splits.values()))
            choice = paths_of_splits.get("train") or paths_of_splits["val"]
            raise DataError(
                f"{folder} holds several splits of a set ({names}); pass one of them: "
                f"--data {folder / choice}. To train on several, link them under other names into "
                "one folder"
            )


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")


def find_styles(folder: Path, images: TrainingImages) -> tuple[Path, ...]:
    """Return the folders of a bank of styles, sorted by name, each a copy of every image.

    Raises a DataError if a copy is missing.
    """
    styles = tuple(sorted(style for style in folder.glob("*/") if not is_hidden(style.name)))
    if not styles:
        raise DataError(f"{folder} holds no folder; --style-bank expects a folder for each style")
    missing: list[Path] = []
    for style in styles:
        # on a network disk one walk through the folder is faster than a look-up for each file
        present = set(walk(style).files)
        paths = map(images.name, range(len(images)))
        missing += [style / path for path in paths if path not in present]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(styles) * len(images)} styled copies are missing, "
            f"first {missing[0].relative_to(folder)}; each style must hold every image under its "
            f"name in {images.folder}"
        )
    return styles
