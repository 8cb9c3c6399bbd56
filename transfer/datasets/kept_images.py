"""Images that are decoded once and kept as bytes, in memory that loader processes share."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from transfer.datasets.images import ImageFiles, Images, name_in_errors
from transfer.running import stop
from transfer.running.console import print_line
from transfer.running.loader import load_batches

FREE_SHARE = 0.25
"""Share of the free memory that kept images may take."""
LEAST_PASSES = 2.0
"""Passes over the images from which it pays to keep them."""
FEWEST_FOR_WORKERS = 256
"""Images from which loader processes save more time than their start takes."""
CGROUP = Path("/sys/fs/cgroup")
IMAGES_PER_BATCH = 64


@dataclass(frozen=True, eq=False)
class KeptFiles(ImageFiles):
    """Images of files whose pixels are in memory."""

    decoded: NDArray[np.uint8]
    """Pixels of all kept images, one after the other; forks share them."""
    starts: NDArray[np.int64]
    """(n,): where the pixels of each image start."""
    sizes: NDArray[np.int64]
    """(n, 2): width and height in px."""

    def decode(self, i: int) -> Image.Image:
        """Return an RGB image from memory."""
        return Image.fromarray(self.pixels(i))

    def pixels(self, i: int) -> NDArray[np.uint8]:
        """Return the pixels (H, W, 3) of an image."""
        start, (width, height) = int(self.starts[i]), self.sizes[i].tolist()
        return self.decoded[start : start + 3 * width * height].reshape(height, width, 3)

    def take(self, indices: NDArray[np.int64]) -> "KeptFiles":
        """Return the images at these positions, in this order, which share the pixels."""
        return KeptFiles(
            self.folder,
            self.encoded_names[indices],
            self.decoded,
            self.starts[indices],
            self.sizes[indices],
        )


def keep_if_read_often(images: Images, passes: float) -> Images:
    """Return the images, decoded once if they are passed often and fit into the memory."""
    if passes < LEAST_PASSES:
        return images
    workers = min(len(os.sched_getaffinity(0)), 16) if len(images) >= FEWEST_FOR_WORKERS else 0
    return keep_decoded(images, FREE_SHARE * free_memory_bytes(), workers)


def keep_decoded(images: Images, limit_bytes: float, num_workers: int) -> Images:
    """Return the images, with their pixels in memory if these fit into the limit.

    Every image is decoded once, now. Images that do not fit, or are arrays already, are returned as
    they are. DataError names a file that cannot be read.
    """
    if not isinstance(images.source, ImageFiles) or not len(images):
        return images
    sizes = _sizes(images.source, limit_bytes)
    if sizes is None:
        print_line("images", f"more than {limit_bytes / 1e9:.1f} GB decoded: read for each pass")
        return images
    kept = _decoded(images.source, sizes, num_workers)
    print_line("images", f"{len(images)} decoded once, {kept.decoded.nbytes / 1e9:.2f} GB kept")
    return Images(kept, images.label_array, images.class_names)


def free_memory_bytes() -> int:
    """Return the memory that is free on this machine, and within the limit of this job if any."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    try:
        limit, used = (
            int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no such group, or no limit: "max"
        return free
    return max(0, min(free, limit - used))


def _sizes(source: ImageFiles, limit_bytes: float) -> NDArray[np.int64] | None:
    """Return width and height (n, 2) of all images; None once their pixels pass the limit."""
    sizes, total = [], 0
    for i in range(len(source)):
        file = source.folder / source.name(i)
        with name_in_errors(file), Image.open(file) as header:
            sizes.append(header.size)
        total += 3 * header.size[0] * header.size[1]
        if total > limit_bytes:
            return None
    return np.array(sizes, dtype=np.int64)


def _decoded(source: ImageFiles, sizes: NDArray[np.int64], num_workers: int) -> KeptFiles:
    """Return the images with their pixels, which loader processes write into shared memory."""
    ends = np.cumsum(3 * sizes.prod(axis=1))
    # anonymous memory that is shared with forks, which a small /dev/shm does not limit
    decoded = np.frombuffer(mmap.mmap(-1, int(ends[-1])), np.uint8)
    starts = np.concatenate([[0], ends[:-1]])
    kept = KeptFiles(source.folder, source.encoded_names, decoded, starts, sizes)

    def write(places: range) -> None:
        for i in places:
            kept.pixels(i)[:] = np.asarray(source.decode(i))

    for _ in load_batches(write, _batches(len(source)), num_workers=num_workers):
        stop.exit_if_requested()
    return kept


def _batches(count: int) -> Iterator[range]:
    for start in range(0, count, IMAGES_PER_BATCH):
        yield range(start, min(start + IMAGES_PER_BATCH, count))
