"""Cache of decoded images in memory that all loader processes share.

A probe on a small dataset reads its images hundreds of times; cached images are decoded once. A
dataset that exceeds the memory limit is decoded in every epoch.

A run that is stopped during decoding decodes again from the start. Decoding takes about 3.5 core
seconds per GB of pixels (measured on 331 JPEG files of 500 x 375 px), divided among the CPU cores
of this process.
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

MIN_EPOCHS = 2
"""Minimum number of epochs for which caching pays."""
SAMPLE = 256
"""Number of images to estimate the decoded size from."""
IMAGES_PER_CHUNK = 16
"""Images that a process decodes at a time."""


class ImageMemoryError(SuiteError, RuntimeError):
    """The decoded images do not fit into memory."""


class PixelBlock:
    """Pixels of images, contiguous in one block of memory."""

    def __init__(self, sizes: NDArray[np.int64], pixels: Pixels) -> None:
        """Store heights and widths (N, 2), and all pixels as uint8."""
        self.sizes = sizes
        self.pixels = pixels
        self.ends = sizes.prod(axis=1).cumsum() * 3
        """(N,): the end of each image in the block."""

    def read(self, i: int) -> Pixels:
        """Return a view of the RGB pixels (H, W, 3), uint8."""
        height, width = self.sizes[i].tolist()
        end = int(self.ends[i])
        return self.pixels[end - 3 * height * width : end].reshape(height, width, 3)


@dataclass(frozen=True, eq=False)
class CachedFiles(ImageFiles):
    """Image files with cached pixels."""

    cache: PixelBlock
    cache_indices: NDArray[np.int64]
    """(n,): index of each image in the cache."""

    def read(self, i: int) -> Pixels:
        """Return a view of the cached RGB pixels (H, W, 3), uint8."""
        return self.cache.read(int(self.cache_indices[i]))

    def take(self, indices: NDArray[np.int64]) -> "CachedFiles":
        """Return the images at these indices, which share the cached pixels."""
        return CachedFiles(
            self.folder, self.encoded_names[indices], self.cache, self.cache_indices[indices]
        )


def with_cached_pixels(images: Images, num_crops: float) -> Images:
    """Return the images, with cached pixels if that pays.

    It pays for many crops, if the pixels fit into the limit. Subsets share the pixels. Names and
    fingerprint do not change. ImageMemoryError if the pixels fit into the user's limit but not into
    memory.
    """
    source = images.source
    if not isinstance(source, ImageFiles) or isinstance(source, CachedFiles):
        return images
    if num_crops < MIN_EPOCHS * len(images):
        return images
    limit = image_memory_bytes()
    sample = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
    # a sample avoids opening every file of a dataset that is far too large
    # twice the limit, since a sample is inexact; the exact size is compared below
    num_bytes = 3 * int(_sizes(source.take(sample)).prod(axis=1).sum()) * len(images) // len(sample)
    if num_bytes <= 2 * limit:
        sizes = _sizes(source)
        num_bytes = 3 * int(sizes.prod(axis=1).sum())
    if num_bytes > limit:
        if limit:  # a limit of 0 disables the cache
            print_line(
                "decode",
                f"{len(images):,} images in every epoch: their pixels need {num_bytes / 1e9:.2g} "
                f"GB, more than the {limit / 1e9:.2g} GB of {OPTION}",
            )
        return images
    if num_bytes > (free := free_memory()):
        raise _memory_error(num_bytes, f"{free / 1e9:.1f} GB are free")
    try:
        # anonymous memory: forks inherit it, and /dev/shm is small in containers
        cache = PixelBlock(sizes, np.frombuffer(mmap.mmap(-1, num_bytes), np.uint8))
    except (OSError, ValueError, OverflowError) as error:
        raise _memory_error(num_bytes, str(error)) from error
    _decode_all(source, cache)
    files = CachedFiles(source.folder, source.encoded_names, cache, np.arange(len(images)))
    return Images(files, images.label_array, images.class_names)


def _sizes(source: ImageFiles) -> NDArray[np.int64]:
    """Return heights and widths (N, 2); DataError if not an image."""
    sizes = image_sizes([f"{source.folder}/{source.name(i)}" for i in range(len(source))])
    for i in np.flatnonzero(sizes[:, 0] == 0).tolist():
        sizes[i] = source.read(i).shape[:2]  # usually raises the error that names the file
    return sizes


def _decode_all(source: ImageFiles, cache: PixelBlock) -> None:
    """Decode all images into the cache, in several processes if many."""

    def decode(indices: range) -> int:
        for i in indices:
            pixels, target = source.read(i), cache.read(i)
            if pixels.shape != target.shape:
                raise DataError(
                    f"{source.folder / source.name(i)}: {pixels.shape[1]} x {pixels.shape[0]} px, "
                    f"but its header said {target.shape[1]} x {target.shape[0]} a moment ago. The "
                    "file is damaged or has been replaced; start the same command again"
                )
            # forked loader processes share this block, so they return only counts
            target[:] = pixels
        return len(indices)

    total = len(source)
    chunks = (
        range(start, min(start + IMAGES_PER_CHUNK, total))
        for start in range(0, total, IMAGES_PER_CHUNK)
    )
    with progress("decode", "images to cache", total) as counter:
        for num_images in load_batches(decode, chunks, num_workers=num_workers(total)):
            counter.add(num_images)
            stop.exit_if_requested()


def _memory_error(num_bytes: int, reason: str) -> ImageMemoryError:
    return ImageMemoryError(
        f"the decoded training images need {num_bytes / 1e9:,.1f} GB, which {OPTION} allows, but "
        f"they do not fit into memory ({reason}). Pass a smaller {OPTION} (0: decode in every "
        "epoch), or run with more memory"
    )
