"""Training images: their files, their order and their pixels.

A folder may be flat or contain a folder per class; only supervised training uses the classes.
Styled copies may be in another folder.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pretrain.pixels.decoding import DECODE_ERRORS, Pixels, decode
from pretrain.pixels.image_names import split_of_folder
from pretrain.running.reading import read_bytes


class DataError(ValueError):
    """The images do not match the run's requirements."""


class DecodeError(DataError):
    """An image could be opened before the run, but does not decode."""


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Readable image files of one folder, and their sizes."""

    folder: Path
    names: NDArray[np.bytes_]
    """Paths (N,) relative to the folder, as bytes.
    A million Path objects would take ten times the memory."""
    heights: NDArray[np.int64]
    widths: NDArray[np.int64]
    unreadable: tuple[str, ...] = ()
    """Images, links and folders that cannot be opened."""
    remark: str = ""
    """A note on files that are skipped, or ""."""

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        """Return the path of an image relative to the folder.

        Bytes that are not UTF-8 are preserved.
        """
        name: bytes = self.names[index]
        return name.decode(errors="surrogateescape")

    def path(self, index: int) -> Path:
        """Return the path of an image."""
        return self.folder / self.name(index)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the class folders, sorted.

        Raises DataError if an image is not in a folder.
        """
        parents = {self.name(index).rpartition("/")[0] for index in range(len(self))}
        if "" in parents:
            raise DataError(
                f"{self.folder} contains images outside of class folders, which have no label"
            )
        names = sorted({folder.partition("/")[0] for folder in parents})
        if len(names) == 1 and split_of_folder(names[0]):
            raise DataError(
                f"{self.folder}: the only class is {names[0]}, a split. Pass --data "
                f"{self.folder / names[0]}"
            )
        return names

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Labels (N,): the index of each image's class."""
        tops = [self.name(index).partition("/")[0] for index in range(len(self))]
        return np.searchsorted(self.classes, tops)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of relative names and sizes in px."""
        rows = zip(self.names, self.heights, self.widths, strict=True)
        return hashlib.sha256(b"\n".join(b"%s %d %d" % row for row in rows)).hexdigest()[:16]

    def read(self, index: int) -> Pixels:
        """Return RGB pixels (H, W, 3), uint8, of one image.

        Raises DecodeError if it does not decode, or if its size differs from the listed one.
        """
        file, listed = self.path(index), (int(self.heights[index]), int(self.widths[index]))
        pixels = read_pixels(file)
        if pixels.shape[:2] != listed:
            size = f"{pixels.shape[0]} x {pixels.shape[1]}"
            raise DecodeError(
                f"{file} is {size} px, but was listed as {listed[0]} x {listed[1]}: the file was "
                "replaced. Run the same command again, which lists the images again"
            )
        return pixels


def read_pixels(file: Path) -> Pixels:
    """Return RGB pixels (H, W, 3), uint8.

    Raises DecodeError if the file does not decode. Raises ReadError if the disk cannot be read: the
    file itself may be fine.
    """
    try:
        content = read_bytes(file)
    except OSError as error:
        raise DecodeError(f"{file} cannot be read ({error.strerror})") from error
    try:
        return decode(content)
    except DECODE_ERRORS as error:
        raise DecodeError(f"{file} does not decode ({error})") from error


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Order of the images: shuffled by seed and epoch.

    The last partial batch is dropped. Every process takes its part of each batch, so two processes
    see the same batches as one.
    """

    num_images: int
    batch_size: int
    seed: int
    rank: int = 0
    num_processes: int = 1

    def __post_init__(self) -> None:
        if self.num_images < self.batch_size:
            raise DataError(
                f"{self.num_images} images do not fill one batch of {self.batch_size}: "
                f"add images or pass a smaller --batch-size"
            )
        if self.batch_size % self.num_processes:
            raise DataError(
                f"a batch of {self.batch_size} does not divide among {self.num_processes} "
                f"processes: choose a multiple"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.num_images // self.batch_size

    def batch(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """Return the epoch and this process's image indices (n,) at a step.

        Steps count from 0.
        """
        epoch, batch_index = divmod(step, self.steps_per_epoch)
        order = _epoch_order(self.num_images, self.seed, epoch)
        images_per_process = self.batch_size // self.num_processes
        start = batch_index * self.batch_size + self.rank * images_per_process
        return epoch, order[start : start + images_per_process]


@lru_cache(maxsize=2)
def _epoch_order(num_images: int, seed: int, epoch: int) -> NDArray[np.int64]:
    bits = np.random.Philox(key=seed, counter=[0, 1, epoch, 0])  # views.py counts from [0, 0, ..]
    return np.random.Generator(bits).permutation(num_images)
