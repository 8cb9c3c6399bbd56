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


@dataclass(frozen=True, eq=False)
class CachedFiles(ImageFiles):
    """Image files whose pixels are in one block of memory."""

    sizes: NDArray[np.int64]
    """Heights and widths (n, 2)."""
    ends: NDArray[np.int64]
    """(n,): the end of each image in the block."""
    block: Pixels
    """Pixels of these images, and of others; uint8."""

    def read(self, i: int) -> Pixels:
        """Return a view of the cached RGB pixels (H, W, 3), uint8."""
        (height, width), end = self.sizes[i].tolist(), int(self.ends[i])
        return self.block[end - 3 * height * width : end].reshape(height, width, 3)

    def take(self, indices: NDArray[np.int64]) -> "CachedFiles":
        """Return the images at these indices, which share the cached pixels."""
        names, sizes, ends = self.encoded_names[indices], self.sizes[indices], self.ends[indices]
        return CachedFiles(self.folder, names, sizes, ends, self.block)


def with_cached_pixels(images: Images, num_crops: float) -> Images:
    """Return the images, with cached pixels if that saves time.

    It does if there are many crops per image and the pixels fit into the limit. Subsets share the
    pixels. Names and fingerprint do not change. Raises ImageMemoryError if the pixels fit into the
    user's limit but not into memory.
    """
    source = images.source
    pays = num_crops >= MIN_EPOCHS * len(images)
    if not pays or not isinstance(source, ImageFiles) or isinstance(source, CachedFiles):
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
        raise ImageMemoryError(
            f"the decoded training images need {num_bytes / 1e9:,.1f} GB, which {OPTION} allows, "
            f"but {free / 1e9:.1f} GB of memory are free. Pass a smaller {OPTION} (0: decode in "
            "every epoch), or run with more memory"
        )
    # anonymous memory, since forks inherit it, and since /dev/shm is small in containers
    block = np.frombuffer(mmap.mmap(-1, num_bytes), np.uint8)
    ends = 3 * sizes.prod(axis=1).cumsum()
    cached = CachedFiles(source.folder, source.encoded_names, sizes, ends, block)
    _decode_all(source, cached)
    return Images(cached, images.label_array, images.class_names)


def _sizes(source: ImageFiles) -> NDArray[np.int64]:
    """Return heights and widths (N, 2); raise DataError for a file that is not an image."""
    sizes = image_sizes([f"{source.folder}/{source.name(i)}" for i in range(len(source))])
    for i in np.flatnonzero(sizes[:, 0] == 0).tolist():
        sizes[i] = source.read(i).shape[:2]  # usually raises the error that names the file
    return sizes


def _decode_all(source: ImageFiles, cached: CachedFiles) -> None:
    """Decode all images into the cache, in several processes if many."""

    def decode(indices: range) -> int:
        for i in indices:
            pixels, target = source.read(i), cached.read(i)
            if pixels.shape != target.shape:
                file = source.folder / source.name(i)
                raise DataError(f"{file}: {pixels.shape}, but its header said {target.shape}")
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
