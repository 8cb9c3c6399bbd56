"""Sizes of images from their headers, read by several processes where there are many files."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

HEADER_BYTES = (2048, 2**17)
"""Bytes to read at first and then: some photographs have previews or profiles before their size."""
FILES_PER_PART = 4096
"""Files that a process measures at a time; fewer files are measured in this process."""
UNREADABLE = (0, 0)
_FILES: dict[int, list[str]] = {}
"""Lists that are being measured, by identity: processes that are started inherit them."""


def image_sizes(files: list[str]) -> NDArray[np.int64]:
    """Return heights and widths (N, 2) in px of image files; (0, 0) for those that do not open.

    A header that says so is enough: the pixels are not decoded. Orientation marks of cameras are
    not applied, as in Pillow.
    """
    starts = range(0, len(files), FILES_PER_PART)
    num_processes = min(len(os.sched_getaffinity(0)), len(starts))
    if num_processes < 2:
        return _sizes(files)
    key = id(files)
    _FILES[key] = files
    try:
        # forked, so that the list of files is shared and not copied
        with ProcessPoolExecutor(num_processes, mp_context=get_context("fork")) as pool:
            parts = pool.map(_sizes_of_part, [(key, start) for start in starts])
            return np.concatenate(list(parts))
    finally:
        del _FILES[key]


def _sizes_of_part(part: tuple[int, int]) -> NDArray[np.int64]:
    key, start = part
    return _sizes(_FILES[key][start : start + FILES_PER_PART])


def _sizes(files: list[str]) -> NDArray[np.int64]:
    return np.array([image_size(file) for file in files], dtype=np.int64).reshape(-1, 2)


def image_size(file: str) -> tuple[int, int]:
    """Return height and width in px, (0, 0) if the file does not open as an image."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            size = _jpeg_size(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return UNREADABLE
    return size or _size_by_pillow(file)


def _jpeg_size(descriptor: int) -> tuple[int, int] | None:
    """Return height and width of an open file, or None for Pillow to decide."""
    for num_bytes in HEADER_BYTES:
        header = os.pread(descriptor, num_bytes, 0)
        if header[:3] != b"\xff\xd8\xff":
            return None
        try:
            height, width, *_ = simplejpeg.decode_jpeg_header(header)
        except ValueError:
            continue  # the header is longer, or the file is damaged
        # beyond this Pillow warns or refuses
        return (height, width) if height * width <= (Image.MAX_IMAGE_PIXELS or 0) else None
    return None


def _size_by_pillow(file: str) -> tuple[int, int]:
    try:
        with Image.open(file) as image:
            return image.height, image.width
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
        return UNREADABLE
