"""Training images: their files, their order and their pixels.

A folder may be flat or hold a folder per class; only supervised training uses the classes.
A folder of styled copies may lie beside it.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.pixels.decoding import DECODE_ERRORS, decode
from pretrain.pixels.image_names import split_of_folder
from pretrain.running.reading import read_bytes


class DataError(ValueError):
    """The images are not what the run needs."""


class DecodeError(DataError):
    """An image that opened before the run does not decode."""


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Readable files of one folder and their sizes, and what else a walk through it has found."""

    folder: Path
    names: NDArray[np.bytes_]
    """Paths (N,) below the folder as on the disk: a million Paths would take ten times the room."""
    heights: NDArray[np.int64]
    widths: NDArray[np.int64]
    repeated: tuple[str, ...] = ()
    """Links to folders, and folders behind links, that are in the set under another name."""
    unreadable: tuple[str, ...] = ()
    """Images, links and folders that do not open."""
    remarks: tuple[str, ...] = ()
    """Lines on files that are not among the images, with their number and the reason."""

    def __len__(self) -> int:
        return len(self.names)

    def name(self, place: int) -> str:
        """Return the path of an image below the folder; one that is not UTF-8 keeps its bytes."""
        name: bytes = self.names[place]
        return name.decode(errors="surrogateescape")

    def path(self, place: int) -> Path:
        """Return the path of an image."""
        return self.folder / self.name(place)

    @cached_property
    def folders(self) -> list[str]:
        """Paths below the root of the folders that hold images, sorted; "" is the root."""
        return sorted({self.name(place).rpartition("/")[0] for place in range(len(self))})

    @cached_property
    def classes(self) -> list[str]:
        """Names of the folders that hold images, sorted; raises a DataError if one is in none."""
        if "" in self.folders:
            raise DataError(f"{self.folder} holds images without a folder, so they have no label")
        names = sorted({folder.partition("/")[0] for folder in self.folders})
        if len(names) == 1 and split_of_folder(names[0]):
            raise DataError(
                f"{self.folder} has {names[0]} as its only class; pass --data "
                f"{self.folder / names[0]}"
            )
        return names

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Labels (N,): the place of each image's folder among the classes."""
        tops = [self.name(place).partition("/")[0] for place in range(len(self))]
        return np.searchsorted(self.classes, tops)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the relative names and the sizes in px."""
        rows = zip(self.names, self.heights, self.widths, strict=True)
        return hashlib.sha256(b"\n".join(b"%s %d %d" % row for row in rows)).hexdigest()[:16]

    def read(self, place: int) -> Tensor:
        """Return RGB pixels (H, W, 3), uint8, of one image.

        DecodeError if it does not decode, or has another size than when it was listed.
        """
        file, listed = self.path(place), (int(self.heights[place]), int(self.widths[place]))
        pixels = read_pixels(file)
        if tuple(pixels.shape[:2]) != listed:
            found = f"{pixels.shape[0]} x {pixels.shape[1]}"
            raise DecodeError(
                f"{file} is {found} px, but was listed as {listed[0]} x {listed[1]}: it was "
                "replaced under its name. Start the same command again, which lists it anew"
            )
        return pixels


def read_pixels(file: Path) -> Tensor:
    """Return RGB pixels (H, W, 3), uint8; raise a DecodeError if the file does not decode.

    Raises a ReadError for a disk that cannot be read: the content of the file may be fine.
    """
    try:
        content = read_bytes(file)
    except OSError as error:
        raise DecodeError(f"{file} cannot be read ({error.strerror})") from error
    try:
        return torch.from_numpy(decode(content))
    except DECODE_ERRORS as error:
        raise DecodeError(f"{file} does not decode ({error})") from error


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
