"""Decoded images of a small set, kept in memory that all loader processes share.

A probe of a small set passes its images hundreds of times; kept images are decoded once. A set that
does not fit into the limit of memory is decoded for every pass.

A run that is stopped while it decodes starts decoding anew. That takes about 3.5 core seconds per
GB of pixels (measured on 331 photographs of 500 x 375 px), divided among the cores of this process.
"""

import mmap
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pretrain.pixels.decoding import Pixels, image_sizes
from pretrain.running import stop
from pretrain.running.console import print_line, progress
from pretrain.running.errors import SuiteError
from pretrain.running.host_memory import OPTION, free_memory, image_memory_bytes
from pretrain.running.loader import load_batches
from transfer.datasets.expected import DataError
from transfer.datasets.images import ImageFiles, Images
from transfer.frozen.extraction import num_workers

LEAST_PASSES = 2
"""Passes from which on it pays to decode all images first."""
SAMPLE = 256
"""Images whose sizes tell whether a set may fit."""
PER_TURN = 16
"""Images that a process decodes at a time."""


class ImageMemoryError(SuiteError, RuntimeError):
    """Error for decoded images that find no room in memory."""


class PixelBlock:
    """Pixels of images, one after the other in one block of memory."""

    def __init__(self, sizes: NDArray[np.int64], pixels: Pixels) -> None:
        """Keep heights and widths (N, 2), and all pixels as uint8."""
        self.sizes = sizes
        self.pixels = pixels
        self.ends = sizes.prod(axis=1).cumsum() * 3
        """(N,), the place behind each image."""

    def read(self, i: int) -> Pixels:
        """Return RGB pixels (H, W, 3), uint8, which share the memory."""
        height, width = self.sizes[i].tolist()
        end = int(self.ends[i])
        return self.pixels[end - 3 * height * width : end].reshape(height, width, 3)


@dataclass(frozen=True, eq=False)
class KeptFiles(ImageFiles):
    """Images of files whose pixels are kept."""

    kept: PixelBlock
    places: NDArray[np.int64]
    """(n,): index of each image among the kept ones."""

    def read(self, i: int) -> Pixels:
        """Return RGB pixels (H, W, 3), uint8, which share the kept memory."""
        return self.kept.read(int(self.places[i]))

    def take(self, indices: NDArray[np.int64]) -> "KeptFiles":
        """Return the images at these positions, in this order, which share the kept memory."""
        return KeptFiles(self.folder, self.encoded_names[indices], self.kept, self.places[indices])


def with_kept_pixels(images: Images, num_crops: float) -> Images:
    """Return the images, with their pixels in memory if that pays for this many crops and they fit.

    Subsets share the pixels. Names and fingerprint are those of the files. ImageMemoryError if they
    fit into the limit that a user has set, but not into memory.
    """
    source = images.source
    if not isinstance(source, ImageFiles) or isinstance(source, KeptFiles):
        return images
    if num_crops < LEAST_PASSES * len(images):
        return images
    limit = image_memory_bytes()
    sample = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
    # a few sizes spare a look into every file of a set that is far too large
    # twice the limit, since a sample may mislead; the exact sum is compared below
    num_bytes = 3 * int(_sizes(source.take(sample)).prod(axis=1).sum()) * len(images) // len(sample)
    if num_bytes <= 2 * limit:
        sizes = _sizes(source)
        num_bytes = 3 * int(sizes.prod(axis=1).sum())
    if num_bytes > limit:
        if limit:  # with 0 the user asked for just that
            print_line(
                "decode",
                f"{len(images):,} images for every pass: decoded they need {num_bytes / 1e9:.2g} "
                f"GB, more than the {limit / 1e9:.2g} GB of {OPTION}",
            )
        return images
    if num_bytes > (free := free_memory()):
        raise _no_room(num_bytes, f"{free / 1e9:.1f} GB are free")
    try:
        # neither a file nor /dev/shm, which is small in containers; forks inherit it
        kept = PixelBlock(sizes, np.frombuffer(mmap.mmap(-1, num_bytes), np.uint8))
    except (OSError, ValueError, OverflowError) as error:
        raise _no_room(num_bytes, str(error)) from error
    _decode_all(source, kept)
    files = KeptFiles(source.folder, source.encoded_names, kept, np.arange(len(images)))
    return Images(files, images.label_array, images.class_names)


def _sizes(source: ImageFiles) -> NDArray[np.int64]:
    """Return heights and widths (N, 2) in px; DataError names a file that is no image."""
    sizes = image_sizes([f"{source.folder}/{source.name(i)}" for i in range(len(source))])
    for i in np.flatnonzero(sizes[:, 0] == 0).tolist():
        sizes[i] = source.read(i).shape[:2]  # in most cases the error that names the file
    return sizes


def _decode_all(source: ImageFiles, kept: PixelBlock) -> None:
    """Decode all images into their places, in several processes if there are many."""

    def decode(indices: range) -> int:
        for i in indices:
            pixels, place = source.read(i), kept.read(i)
            if pixels.shape != place.shape:
                raise DataError(
                    f"{source.folder / source.name(i)}: {pixels.shape[1]} x {pixels.shape[0]} px, "
                    f"but its header said {place.shape[1]} x {place.shape[0]} a moment ago; it may "
                    "have been replaced meanwhile, or is damaged; start the same command again"
                )
            # loader processes are forked and share this block, so only counts travel back
            place[:] = pixels
        return len(indices)

    total = len(source)
    turns = (range(start, min(start + PER_TURN, total)) for start in range(0, total, PER_TURN))
    with progress("decode", "images to keep", total) as counter:
        for number in load_batches(decode, turns, num_workers=num_workers(total)):
            counter.add(number)
            stop.exit_if_requested()


def _no_room(num_bytes: int, why: str) -> ImageMemoryError:
    return ImageMemoryError(
        f"the decoded training images need {num_bytes / 1e9:,.1f} GB, within {OPTION}, but they "
        f"find no room in memory ({why}); give a smaller {OPTION}, with 0 they are decoded for "
        "every pass, or give the run more memory"
    )
