"""Listings of image folders: walked through once, and kept for the next start.

Links to folders are followed. Kept listings lie below $XDG_CACHE_HOME/ssl-benchmark/listings and
may be deleted at any time. One counts as long as every folder has the entries that it had. A file
whose content is replaced by an image of another size under its old name is noticed when it is read.
"""

import hashlib
import io
import json
import os
import time
import zipfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pretrain.data.images import DataError, FolderState, TrainingImages
from pretrain.pixels.decoding import UNREADABLE, image_size, image_sizes
from pretrain.pixels.image_names import IMAGE_SUFFIXES, is_hidden, is_image
from pretrain.running.atomic_files import WriteError, write_whole
from pretrain.running.lock import wait_for_lock

UNSURE_S = 2.0
"""A folder that changed so shortly before it was listed may change again at the same clock time."""
TORN = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
"""Errors of reading a file that was cut short or damaged."""


@dataclass(frozen=True)
class Tree:
    """Contents of a folder, by the paths below it that lead there, without hidden names."""

    files: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Links that lead nowhere, and folders that may not be listed."""
    repeated: list[str] = field(default_factory=list)
    """Links to folders, and folders behind links, that were walked under another name."""
    states: list[FolderState] = field(default_factory=list)
    """Every folder that was walked."""


def walk(folder: Path) -> Tree:
    """List a folder, following links; each real folder is walked once.

    A folder is listed by its own path rather than by a link to it. Among links the shorter path
    wins, then the first by name.
    """
    tree, walked = Tree(), set[tuple[int, int]]()
    found_links = [""]

    def add(below: str) -> None:
        place = (folder / below).stat()
        if (place.st_dev, place.st_ino) in walked:
            tree.repeated.append(below)
            return
        walked.add((place.st_dev, place.st_ino))
        try:
            with os.scandir(folder / below) as scanned:
                entries = [entry for entry in scanned if not is_hidden(entry.name)]
        except PermissionError:
            tree.unreadable.append(below or ".")
            return
        tree.states.append(FolderState(below, place.st_ino, place.st_ctime_ns))
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_symlink() and not Path(entry.path).exists():  # no target, or a circle
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
    is a folder that may not be listed. Raises a DataError if there is no image, or if more are
    unreadable than tolerated; it names them. Of several processes on a machine that ask at the same
    time, one lists and the others wait.
    """
    path = cache_folder() / f"{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]}.npz"
    with ExitStack() as stack:
        with suppress(WriteError):  # without a cache or locks, all list the folder
            stack.enter_context(wait_for_lock(path.with_suffix(".lock")))
        images = _load(path, folder)
        if images is None:
            started_s = time.time()
            images = list_images(folder)
            _keep(path, images, started_s)
    num_broken = len(images.unreadable)
    if num_broken > tolerated:
        raise DataError(
            f"{folder}: {num_broken} of {len(images) + num_broken} images are unreadable "
            f"({', '.join(images.unreadable[:10])}{', ...' if num_broken > 10 else ''}), "
            f"{tolerated} tolerated; replace them or pass --tolerated-images {num_broken}"
        )
    return images


def list_images(folder: Path) -> TrainingImages:
    """Walk through a folder and read the size of every image.

    Raises a DataError if it is no folder or holds no image.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; --data wants a folder of images")
    tree = walk(folder)
    candidates = [path for path in tree.files if is_image(path.rpartition("/")[2])]
    candidates += tree.unreadable
    if not candidates:
        raise DataError(f"{folder} holds no image ({', '.join(IMAGE_SUFFIXES)}) at any depth")
    # folder by folder, as paths are sorted: no name has a byte below the one between folders
    candidates.sort(key=lambda path: path.replace("/", "\0"))
    sizes = image_sizes([f"{folder}/{path}" for path in candidates])
    readable: NDArray[np.bool_] = sizes[:, 0] > 0
    names = [path.encode(errors="surrogateescape") for path in compress(candidates, readable)]
    heights, widths = (np.ascontiguousarray(column) for column in sizes[readable].T)
    return TrainingImages(
        folder,
        np.array(names, dtype=np.bytes_),
        heights,
        widths,
        tuple(tree.repeated),
        tuple(compress(candidates, ~readable)),
        tuple(tree.states),
    )


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


def cache_folder() -> Path:
    """Return the folder of kept listings."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ssl-benchmark" / "listings"


def _keep(path: Path, images: TrainingImages, started_s: float) -> None:
    """Write a listing, unless a folder changed just before; without room nothing is kept."""
    latest_ns = max((state.changed_ns for state in images.states), default=0)
    if latest_ns > (started_s - UNSURE_S) * 1e9:
        return
    content = io.BytesIO()
    facts = json.dumps([images.repeated, images.unreadable, images.states])
    np.savez(
        content,
        facts=np.array(facts),
        names=images.names,
        heights=images.heights,
        widths=images.widths,
    )
    with suppress(WriteError):
        write_whole(path, content.getbuffer())


def _load(path: Path, folder: Path) -> TrainingImages | None:
    """Return a kept listing, or None if there is none that counts."""
    try:
        with path.open("rb") as content, np.load(content) as file:
            repeated, unreadable, states = json.loads(str(file["facts"]))
            arrays = {name: file[name] for name in ("names", "heights", "widths")}
        images = TrainingImages(
            folder,
            **arrays,
            repeated=tuple(repeated),
            unreadable=tuple(unreadable),
            states=tuple(FolderState(*state) for state in states),
        )
        unchanged = all(_state(folder, state.path) == state for state in images.states)
    except TORN:
        return None
    opened = any(_opens(folder / name) for name in images.unreadable)
    return images if unchanged and not opened else None


def _state(folder: Path, path: str) -> FolderState:
    place = (folder / path).stat()
    return FolderState(path, place.st_ino, place.st_ctime_ns)


def _opens(path: Path) -> bool:
    """Return whether what could not be read before can be read now: an image or a folder."""
    if path.is_dir():
        return os.access(path, os.R_OK | os.X_OK)
    return image_size(str(path)) != UNREADABLE
