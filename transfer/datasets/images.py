"""One split of a dataset: labels in memory, images decoded on demand."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from pretrain.pixels import decoding
from pretrain.pixels.decoding import DECODE_ERRORS, Pixels
from pretrain.pixels.image_names import count_suffixes, is_hidden, is_image
from pretrain.running.reading import read_bytes, retry_reads
from transfer.datasets.expected import DataError

if TYPE_CHECKING:
    from torch import Tensor


class NamedImages(ABC):
    """Images by name, in files or in memory."""

    encoded_names: NDArray[np.bytes_]
    """Names (n,), UTF-8.

    They are in an array, since each loader process would copy a list of a million strings.
    """

    def __len__(self) -> int:
        return len(self.encoded_names)

    def name(self, i: int) -> str:
        """Return the name of an image, for messages."""
        return str(self.encoded_names[i], "utf-8")

    def decode(self, i: int) -> Image.Image:
        """Return an RGB image."""
        return Image.fromarray(self.read(i))

    @abstractmethod
    def read(self, i: int) -> Pixels:
        """Return RGB pixels (H, W, 3), uint8.

        Raises DataError with the file's name if it cannot be read.
        """


@dataclass(frozen=True, eq=False)
class ImageFiles(NamedImages):
    """Images in files; names are relative to the folder, with forward slashes."""

    folder: Path
    encoded_names: NDArray[np.bytes_]

    def read(self, i: int) -> Pixels:
        return read_pixels(self.folder / self.name(i))

    def take(self, indices: NDArray[np.int64]) -> ImageFiles:
        """Return the images with these indices, in this order."""
        return ImageFiles(self.folder, self.encoded_names[indices])

    def content(self, i: int) -> bytes:
        """Return the file size, used in the fingerprint; -1 if missing."""
        return b"%d" % self._size_and_mtime(i)[0]

    def state(self) -> str:
        """Return a hash of file names, sizes and modification times.

        It detects a file that was replaced by one of the same size. A copy of the dataset has
        other times, so the fingerprint cannot include them. The change time (ctime) is ignored:
        permissions and the hard links of a backup change it.
        """
        digest = hashlib.sha256()
        for i in range(len(self)):
            digest.update(b"%s\0%d %d\n" % (bytes(self.encoded_names[i]), *self._size_and_mtime(i)))
        return digest.hexdigest()[:16]

    def _size_and_mtime(self, i: int) -> tuple[int, int]:
        """Return size and modification time in ns; (-1, -1) if missing."""
        try:
            # creating a Path per file takes longer than os.stat
            status = os.stat(f"{self.folder}/{self.name(i)}")  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return -1, -1
        return status.st_size, status.st_mtime_ns


@dataclass(frozen=True, eq=False)
class ImageArrays(NamedImages):
    """Images in memory: pixels (n, H, W, 3), uint8.

    Names are only used in messages and for seeded splits.
    """

    pixels: NDArray[np.uint8]
    encoded_names: NDArray[np.bytes_]

    def read(self, i: int) -> Pixels:
        pixels: Pixels = self.pixels[i]
        return pixels

    def take(self, indices: NDArray[np.int64]) -> ImageArrays:
        """Return the images with these indices, in this order."""
        return ImageArrays(self.pixels[indices], self.encoded_names[indices])

    def content(self, i: int) -> bytes:
        """Return the pixels, for the fingerprint."""
        return bytes(self.pixels[i].tobytes())


class ImageSplit:
    """One split of a dataset of any type."""

    source: ImageFiles | ImageArrays
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Remarks that check-data prints, even if the dataset is complete."""

    def __len__(self) -> int:
        return len(self.source)

    def name(self, i: int) -> str:
        """Return an image's path in the data folder, for messages."""
        return self.source.name(i)

    @property
    def files(self) -> tuple[ImageFiles, ...]:
        """Return the files that are read on demand; empty for arrays."""
        return (self.source,) if isinstance(self.source, ImageFiles) else ()

    def states(self) -> list[str]:
        """Return the `ImageFiles.state` of these files."""
        return [files.state() for files in self.files]


class Images(ImageSplit):
    """One split: (RGB image, label) pairs.

    labels (n,) int64; for VOC (n, 20) int8 with 1 present, 0 difficult objects only, -1 absent.
    Indexing gives the label as an int; for VOC, as a row. Labels are stored as a numpy array, so
    that the planner can open datasets without importing torch.
    """

    def __init__(
        self,
        source: ImageFiles | ImageArrays,
        labels: NDArray[np.integer[Any]],
        class_names: Sequence[str],
        *,
        notes: Sequence[str] = (),
    ) -> None:
        low, high = (labels.min(), labels.max()) if labels.ndim == 1 and len(labels) else (0, -1)
        if len(source) != len(labels) or low < 0 or high >= len(class_names):
            raise DataError(
                f"{len(source)} images, {len(labels)} labels from {low} to {high} but "
                f"{len(class_names)} classes: the annotation files do not belong together; unpack "
                "the dataset again"
            )
        self.source = source
        self.label_array = labels
        self.class_names = tuple(class_names)
        self.notes = tuple(notes)
        self.recoded = False
        """True if lossy compression has changed the published pixels."""

    @cached_property
    def labels(self) -> Tensor:
        """The labels (n,) or (n, 20) as a tensor, without a copy."""
        import torch

        return torch.from_numpy(self.label_array)

    def __getitem__(self, i: int) -> tuple[Image.Image, Any]:
        label = self.labels[i]
        return self.source.decode(i), int(label) if label.ndim == 0 else label

    def subset(self, indices: Sequence[int] | NDArray[np.int64] | Tensor) -> Images:
        """Return the images with these indices (n,), in this order."""
        index_array = np.asarray(indices, dtype=np.int64)
        source, labels = self.source.take(index_array), self.label_array[index_array]
        subset = Images(source, labels, self.class_names, notes=self.notes)
        subset.recoded = self.recoded
        return subset

    @cached_property
    def fingerprint(self) -> str:
        """Return 16 hex digits that identify classes, images and labels.

        They are a hash of class names, image names, file sizes or pixels, and labels. File times
        are ignored, so that a copied dataset keeps its fingerprint.
        """
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        for i in range(len(self)):
            digest.update(self.source.name(i).encode() + b"\0" + self.source.content(i) + b"\n")
        digest.update(self.label_array.tobytes())
        return digest.hexdigest()[:16]


def image_files(
    data: Path, names: Sequence[str], labels: Sequence[int], class_names: Sequence[str]
) -> Images:
    """Return a split of image files, named relative to the data folder."""
    source = ImageFiles(data, encode_names(names))
    return Images(source, np.array(labels, dtype=np.int64), class_names)


def encode_names(names: Sequence[str]) -> NDArray[np.bytes_]:
    """Return the names (n,) in UTF-8."""
    return np.array([name.encode() for name in names], dtype=np.bytes_)


def read_pixels(file: Path) -> Pixels:
    """Return RGB pixels (H, W, 3), uint8.

    Raises DataError with the file's name if it cannot be read.
    """
    with name_in_errors(file):
        return decoding.decode(read_bytes(file))


@contextmanager
def name_in_errors(file: Path) -> Iterator[None]:
    """Convert read and decoding errors to a DataError that names the file."""
    try:
        yield
    except DECODE_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{file}: cannot be read ({error.strerror})") from error
        raise DataError(
            f"{file}: cannot be decoded ({error}); replace the file, "
            "python -m transfer check-data lists all such files"
        ) from error


class ChangedDataError(DataError):
    """A dataset has changed since it was checked."""


def changed_data_error(change: str) -> ChangedDataError:
    """Return the error for a dataset that has changed.

    change: continues the sentence "the dataset ...".
    """
    return ChangedDataError(
        f"the dataset {change}. No result is written. "
        "Run the same command again when nothing changes the dataset any more"
    )


class IntermediateFiles(Protocol):
    """Intermediate files on disk that were computed from images."""

    def discard(self) -> None:
        """Delete them."""


@contextmanager
def unchanged(images: ImageSplit, *intermediates: IntermediateFiles) -> Iterator[None]:
    """Raise ChangedDataError if the image files change during the block.

    Intermediate files are deleted then.
    """
    states = images.states()
    yield
    if images.states() != states:
        for intermediate in intermediates:
            intermediate.discard()
        change = f"of {images.name(0)} has changed while it was being used"
        raise changed_data_error(f"{change}; image files were written in the meantime")


MAX_SIDE_PX, JPEG_QUALITY = 64, 60
"""Size and quality of record thumbnails: about 1.7 kB each in base64."""


def describe_image(images: Images, index: int) -> dict[str, Any]:
    """Return index, label, class, path and thumbnail of an image.

    They are stored in records. With them, figures can be drawn without the dataset.
    """
    image, label = images[index]
    return {
        "index": index,
        "label": label,
        "class": images.class_names[label],
        "file": images.name(index),
        "jpeg_base64": thumbnail(image),
    }


def thumbnail(image: Image.Image) -> str:
    """Return a JPEG thumbnail in base64, at most MAX_SIDE_PX per side."""
    small = image.copy()
    small.thumbnail((MAX_SIDE_PX, MAX_SIDE_PX))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=JPEG_QUALITY)
    return base64.b64encode(buffer.getvalue()).decode()


def class_names(folder: Path) -> list[str]:
    """Return the subfolders in alphabetical order, without hidden and system folders."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not is_hidden(e.name))


def read_class_folders(data: Path, folder: Path, classes: Sequence[str]) -> Images:
    """Return the images of class folders, ordered by class and name.

    A missing folder is an empty class. A note gives the number of files that are not images.
    """
    names: list[str] = []
    non_images: list[str] = []
    labels: list[int] = []
    prefix = folder.relative_to(data).as_posix()
    for label, name in enumerate(classes):
        # with a Path per file, this takes several times as long
        files = sorted(os.listdir(folder / name)) if (folder / name).is_dir() else []  # noqa: PTH208
        non_images += [file for file in files if not is_image(file) and not is_hidden(file)]
        files = [file for file in files if is_image(file)]
        names += [f"{prefix}/{name}/{file}" for file in files]
        labels += [label] * len(files)
    if not names:
        raise DataError(f"{folder}: no image in any of its class folders")
    images = image_files(data, names, labels, classes)
    if non_images:
        suffixes = count_suffixes(non_images)
        reason = "files and folders in class folders are not images by their suffix"
        images.notes = (f"{prefix}: {len(non_images)} {reason}: {suffixes}",)
    return images


EXIF_ORIENTATION = 274
QUARTER_TURNS = (5, 6, 7, 8)
"""EXIF orientations that swap width and height."""


def decode_upright(file: Path) -> Image.Image:
    """Return the upright RGB image.

    Raises DataError with the file's name if it cannot be read.
    """
    with name_in_errors(file):
        content = read_bytes(file)
        image = Image.fromarray(decoding.decode(content))
        with Image.open(io.BytesIO(content)) as header:
            image.getexif()[EXIF_ORIENTATION] = _orientation(header)
    return ImageOps.exif_transpose(image)


def upright_size(file: Path) -> tuple[int, int]:
    """Return width and height in px, read from the file header.

    Raises DataError with the file's name if it cannot be read.
    """

    def measure() -> tuple[int, int]:
        with Image.open(file) as header:
            width, height = header.size
            turned = _orientation(header) in QUARTER_TURNS
        return (height, width) if turned else (width, height)

    with name_in_errors(file):
        return retry_reads(file, measure)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(EXIF_ORIENTATION, 1))
    except (OSError, SyntaxError, TypeError, ValueError, struct.error):
        return 1  # damaged EXIF data: assume the default orientation


def read_mat(file: Path, *variables: str, squeeze_me: bool = False) -> tuple[NDArray[Any], ...]:
    """Return variables of a MATLAB file.

    squeeze_me: remove axes of length 1.

    Raises DataError for a file that cannot be read, FileNotFoundError if it is missing.
    """
    import scipy.io

    file.stat()  # FileNotFoundError, which scipy does not raise
    try:
        content = scipy.io.loadmat(file, variable_names=variables, squeeze_me=squeeze_me)
        return tuple(content[name] for name in variables)
    except Exception as error:  # scipy raises a dozen types on other formats and damaged files
        raise DataError(f"{file}: it cannot be read ({error}); get it again") from error
