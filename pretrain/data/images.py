"""Training images: their files, their order and their pixels.

A folder may be flat or hold a folder per class; only supervised training uses the classes.
A folder of styled copies may lie beside it.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.data.tree import FolderState, ImageFiles, walk
from pretrain.pixels.decoding import DECODE_ERRORS, decode, image_sizes

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff"}


class DataError(ValueError):
    """The images are not what the run needs."""


class DecodeError(DataError):
    """An image that opened before the run does not decode."""


class ChangedError(DataError):
    """Images were changed while a run read them."""


@dataclass(frozen=True)
class TrainingImages:
    """Readable files of one folder and their sizes."""

    folder: Path
    files: ImageFiles
    heights: NDArray[np.int64]
    widths: NDArray[np.int64]
    repeated: tuple[Path, ...] = ()
    """Links to folders, and folders behind links, that are in the set under another name."""

    def __len__(self) -> int:
        return len(self.files)

    @property
    def num_folders(self) -> int:
        """Number of folders that hold images."""
        return len(self.files.folders)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the folders that hold images, sorted; raises a DataError if one is in none."""
        if "" in self.files.top_folders:
            raise DataError(f"{self.folder} holds images without a folder, so they have no label")
        return sorted(set(self.files.top_folders))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Labels (N,): the place of each image's folder among the classes."""
        number = {name: place for place, name in enumerate(self.classes)}
        label_of_folder = np.array([number[name] for name in self.files.top_folders])
        return label_of_folder[self.files.folder_of].astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the relative names and the sizes in px."""
        content = hashlib.sha256()
        separator = ""
        for place in range(len(self)):
            path = self.files.below_root(place)
            line = f"{separator}{path} {self.heights[place]} {self.widths[place]}"
            # a name that is not UTF-8 counts with the bytes that it has on the disk
            content.update(line.encode(errors="surrogateescape"))
            separator = "\n"
        return content.hexdigest()[:16]

    def read(self, place: int) -> Tensor:
        """Return RGB pixels (H, W, 3), uint8, of one image.

        DecodeError if it does not decode, or has another size than when it was listed.
        """
        file, listed = self.files[place], (int(self.heights[place]), int(self.widths[place]))
        pixels = read_pixels(file)
        if tuple(pixels.shape[:2]) != listed:
            found = f"{pixels.shape[0]} x {pixels.shape[1]}"
            raise DecodeError(
                f"{file} is {found} px, but was listed as {listed[0]} x {listed[1]}: it was "
                f"replaced under its name. Touch its folder ({file.parent}), so that it is listed "
                f"again, and start the same command again"
            )
        return pixels


def find_images(folder: Path, *, tolerated: int = 0) -> TrainingImages:
    """Return all images below a folder, sorted by name; those that do not open are left out.

    Links to folders are followed. A link that leads nowhere is an unreadable image, since it may
    stand for a whole class, and so is a folder that may not be listed. Raises a DataError if there
    is no image, or if more are unreadable than tolerated; it names them.
    """
    listing = list_images(folder)
    listing.require_readable(tolerated)
    return listing.images


@dataclass(frozen=True)
class Listing:
    """All that a walk through a folder has found."""

    images: TrainingImages
    unreadable: tuple[str, ...]
    """Paths of images, links and folders that do not open."""
    states: tuple[FolderState, ...]
    """Folders when they were listed."""

    def require_readable(self, tolerated: int) -> None:
        """Raise a DataError that names the unreadable images if they are more than tolerated."""
        num_broken = len(self.unreadable)
        if num_broken > tolerated:
            raise DataError(
                f"{self.images.folder}: {num_broken} of {len(self.images) + num_broken} images are "
                f"unreadable ({', '.join(self.unreadable[:10])}"
                f"{', ...' if num_broken > 10 else ''}), {tolerated} tolerated; "
                f"replace them or pass --tolerated-images {num_broken}"
            )


def list_images(folder: Path) -> Listing:
    """Walk through a folder and read the size of every image.

    Raises a DataError if it is no folder or holds no image.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; --data wants a folder of images")
    tree = walk(folder)
    candidates = [path for path in tree.files() if is_image(path)] + tree.unreadable
    if not candidates:
        raise DataError(f"{folder} holds no image ({', '.join(sorted(SUFFIXES))}) at any depth")
    # folder by folder, as paths are sorted: no name has a byte below the one between folders
    candidates.sort(key=lambda path: path.replace("/", "\0"))
    sizes = image_sizes([f"{folder}/{path}" for path in candidates])
    readable: NDArray[np.bool_] = sizes[:, 0] > 0
    files = ImageFiles.of(folder, list(compress(candidates, readable)))
    heights, widths = (np.ascontiguousarray(column) for column in sizes[readable].T)
    repeated = tuple(folder / path for path in tree.repeated)
    return Listing(
        TrainingImages(folder, files, heights, widths, repeated),
        tuple(compress(candidates, ~readable)),
        tuple(tree.states),
    )


def is_image(path: str) -> bool:
    """Return whether the suffix of a file's name is that of an image."""
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return bool(stem) and dot + suffix.lower() in SUFFIXES


def read_pixels(file: Path) -> Tensor:
    """Return RGB pixels (H, W, 3), uint8; raise a DecodeError if the file does not decode."""
    try:
        return torch.from_numpy(decode(file.read_bytes()))
    except DECODE_ERRORS as error:
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


@dataclass(frozen=True)
class StyleBank:
    """Names of styles that hold a copy of every training image."""

    folder: Path
    images_folder: Path
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def styled_path(self, file: Path, style: int) -> Path:
        """Return the path of a training image's copy in a style, given by its place in `names`."""
        return self.folder / self.names[style] / file.relative_to(self.images_folder)


def find_styles(folder: Path, images: TrainingImages) -> StyleBank:
    """Return the styles of a bank; DataError unless each holds a copy of every image."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; --style-bank expects a folder that holds one folder per style"
        )
    names = tuple(sorted(place.name for place in folder.iterdir() if place.is_dir()))
    if not names:
        raise DataError(
            f"{folder} holds no folder; --style-bank expects one folder per style in it"
        )
    bank = StyleBank(folder, images.folder, names)
    missing: list[Path] = []
    for name in names:
        # on a network disk one walk through the folder is faster than a look-up for each file
        present = set(walk(folder / name).files())
        paths = map(images.files.below_root, range(len(images)))
        missing += [folder / name / path for path in paths if path not in present]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of {len(bank) * len(images)} styled copies are missing, "
            f"first {missing[0].relative_to(folder)}; each style must hold every image under its "
            f"name in {images.folder}"
        )
    return bank
