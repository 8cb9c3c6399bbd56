"""Training images: their files, their order and their pixels.

A folder may be flat or hold a folder per class; only supervised training uses the classes.
"""

import hashlib
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff"}


class DataError(ValueError):
    """The images are not what the run needs."""


class DecodeError(DataError):
    """An image that opened before the run does not decode."""


class ChangedError(DataError):
    """Images were written while a run read them."""


@dataclass(frozen=True)
class TrainingImages:
    """Readable files of one folder and their sizes."""

    folder: Path
    files: tuple[Path, ...]
    heights: NDArray[np.int64]
    widths: NDArray[np.int64]
    last_writes: NDArray[np.int64]
    """Times (N,) at which the files were last written, taken before they were read, in ns."""
    repeated: tuple[Path, ...] = ()
    """Links to folders, and folders behind links, that are in the set under another name."""

    def __len__(self) -> int:
        return len(self.files)

    def written_since(self) -> list[str]:
        """Return the names of the files that were written, or deleted, since they were found."""
        changed = np.flatnonzero(_last_writes(self.files) != self.last_writes)
        return [self.files[i].relative_to(self.folder).as_posix() for i in changed]

    @property
    def num_folders(self) -> int:
        """Number of folders that hold images."""
        return len({file.parent for file in self.files})

    @cached_property
    def classes(self) -> list[str]:
        """Names of the folders that hold images, sorted; raises a DataError if one is in none."""
        places = [file.relative_to(self.folder).parts for file in self.files]
        if any(len(parts) < 2 for parts in places):
            raise DataError(f"{self.folder} holds images without a folder, so they have no label")
        return sorted({parts[0] for parts in places})

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Labels (N,): the place of each image's folder among the classes."""
        number = {name: place for place, name in enumerate(self.classes)}
        names = (file.relative_to(self.folder).parts[0] for file in self.files)
        return np.array([number[name] for name in names], dtype=np.int64)

    @property
    def fingerprint(self) -> str:
        """Hash of the relative names and the sizes in px."""
        lines = [
            f"{file.relative_to(self.folder).as_posix()} {height} {width}"
            for file, height, width in zip(self.files, self.heights, self.widths, strict=True)
        ]
        # a name that is not UTF-8 counts with the bytes that it has on the disk
        content = "\n".join(lines).encode(errors="surrogateescape")
        return hashlib.sha256(content).hexdigest()[:16]


def find_images(folder: Path, *, tolerated: int = 0) -> TrainingImages:
    """Return all images below a folder, sorted by name; those that do not open are left out.

    Links to folders are followed. A link that leads nowhere is an unreadable image, since it may
    stand for a whole class, and so is a folder that may not be listed. Raises a DataError if there
    is no image, or if more are unreadable than tolerated; it names them.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; --data wants a folder of images")
    tree = walk(folder)
    images = [file for file in tree.files if file.suffix.lower() in SUFFIXES]
    candidates = sorted([*images, *tree.unreadable])
    if not candidates:
        raise DataError(f"{folder} holds no image ({', '.join(sorted(SUFFIXES))}) at any depth")
    last_writes = _last_writes(candidates)
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(_size, candidates))
    broken = [file for file, size in zip(candidates, sizes, strict=True) if size is None]
    if len(broken) > tolerated:
        names = ", ".join(str(file.relative_to(folder)) for file in broken[:10])
        raise DataError(
            f"{folder}: {len(broken)} of {len(candidates)} images are unreadable ({names}"
            f"{', ...' if len(broken) > 10 else ''}), {tolerated} tolerated; "
            f"replace them or pass --tolerated-images {len(broken)}"
        )
    readable = [i for i, size in enumerate(sizes) if size is not None]
    files = tuple(candidates[i] for i in readable)
    measured = np.array([size for size in sizes if size is not None], dtype=np.int64)
    return TrainingImages(
        folder,
        files,
        measured[:, 0],
        measured[:, 1],
        last_writes[readable],
        repeated=tuple(tree.repeated),
    )


@dataclass
class Tree:
    """Contents of a folder at any depth, by the paths that lead there."""

    files: list[Path] = field(default_factory=list)
    """Files and links to files."""
    unreadable: list[Path] = field(default_factory=list)
    """Links that lead nowhere, and folders that may not be listed."""
    repeated: list[Path] = field(default_factory=list)
    """Links to folders, and folders behind links, that were walked under another name."""


def walk(folder: Path) -> Tree:
    """List a folder, following links; each real folder is walked once.

    A folder is listed by its own path rather than by a link to it. Among links the shorter path
    wins, then the first by name.
    """
    tree = Tree()
    walked: set[tuple[int, int]] = set()
    links = [folder]
    while links:
        next_links: list[Path] = []
        for link in sorted(links, key=lambda path: (len(path.parts), path)):
            if not _walk(link, tree, walked, next_links):
                tree.repeated.append(link)
        links = next_links
    return tree


def _walk(folder: Path, tree: Tree, walked: set[tuple[int, int]], links: list[Path]) -> bool:
    """Add a folder's files to the tree and its links to folders to `links`.

    Return False, and add nothing, if the folder was walked before.
    """
    place = folder.stat()
    if (place.st_dev, place.st_ino) in walked:
        return False
    walked.add((place.st_dev, place.st_ino))
    try:
        entries = list(os.scandir(folder))
    except PermissionError:
        tree.unreadable.append(folder)
        return True
    for entry in entries:
        path = folder / entry.name
        if entry.is_symlink():
            try:
                is_folder = stat.S_ISDIR(path.stat().st_mode)
            except OSError:  # it has no target, or links form a circle
                tree.unreadable.append(path)
                continue
            (links if is_folder else tree.files).append(path)
        elif entry.is_dir():
            if not _walk(path, tree, walked, links):
                tree.repeated.append(path)
        else:
            tree.files.append(path)
    return True


def _last_writes(files: Sequence[Path]) -> NDArray[np.int64]:
    """Return the times (n,) at which files were last written, in ns; -1 for one that is absent."""
    with ThreadPoolExecutor(8) as pool:
        return np.array(list(pool.map(_last_write, files)), dtype=np.int64)


def _last_write(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return -1


def _size(file: Path) -> tuple[int, int] | None:
    try:
        with Image.open(file) as image:
            return image.height, image.width
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
        return None


def read_pixels(file: Path) -> Tensor:
    """Return RGB pixels (H, W, 3), uint8; raise a DecodeError if the file does not decode."""
    try:
        if file.suffix.lower() in {".jpg", ".jpeg"}:
            # PIL below reads what simplejpeg refuses: CMYK, and other formats named .jpeg
            with suppress(ValueError):
                return torch.from_numpy(simplejpeg.decode_jpeg(file.read_bytes()))
        with Image.open(file) as image:
            return torch.from_numpy(np.array(image.convert("RGB")))
    except (OSError, ValueError, UnidentifiedImageError) as error:
        raise DecodeError(f"{file} does not decode ({error}); replace or delete it") from error


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Order of the images: shuffled by seed and epoch, the last partial batch dropped.

    Every process takes its share of each batch, so two processes see the same batches as one.
    """

    num_images: int
    batch_size: int
    seed: int
    rank: int = 0
    num_processes: int = 1

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise DataError(f"--seed {self.seed} is negative; choose 0 or more")
        if self.num_images < self.batch_size:
            raise DataError(
                f"{self.num_images} images do not fill one batch of {self.batch_size}; "
                f"add images or pass a smaller --batch-size"
            )
        if self.batch_size % self.num_processes:
            raise DataError(
                f"a batch of {self.batch_size} does not divide among {self.num_processes} "
                f"processes; choose a multiple"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.num_images // self.batch_size

    def batch(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """Return the epoch and this process's image indices (n,) at a step counted from 0."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = _epoch_order(self.num_images, self.seed, epoch)
        images_per_process = self.batch_size // self.num_processes
        start = place * self.batch_size + self.rank * images_per_process
        return epoch, order[start : start + images_per_process]


@lru_cache(maxsize=2)
def _epoch_order(num_images: int, seed: int, epoch: int) -> NDArray[np.int64]:
    bits = np.random.Philox(key=seed, counter=[0, 1, epoch, 0])  # views.py counts from [0, 0, ..]
    return np.random.Generator(bits).permutation(num_images)
