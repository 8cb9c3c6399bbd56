"""The content of an image file as RGB pixels, and the sizes of many of them.

Pillow decides what is readable; simplejpeg gives the same pixels of a JPEG in half the time.
"""

import io
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

JPEG_START = b"\xff\xd8\xff"
SAME_AS_PILLOW = ("Gray", "YCbCr", "RGB")
"""JPEG color spaces of which simplejpeg decodes the same pixels as Pillow, unlike CMYK."""
DECODE_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""Errors of Pillow for content that is no readable image, of which some come at its header."""

Pixels = NDArray[Any]
"""(H, W, 3), uint8; OpenCV's stubs know no number types."""


def decode(content: bytes) -> Pixels:
    """Return the RGB pixels (H, W, 3), uint8, of an image file; DECODE_ERRORS if that fails."""
    if content.startswith(JPEG_START):
        try:
            if simplejpeg.decode_jpeg_header(content)[2] in SAME_AS_PILLOW:
                pixels: Pixels = simplejpeg.decode_jpeg(content, "RGB")
                return pixels
        except ValueError:
            pass  # simplejpeg also refuses small flaws that Pillow accepts
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.array(image.convert("RGB"))
    except UnidentifiedImageError as error:
        page = content.lstrip().startswith(b"<")
        kind = "a page in HTML or XML" if page else f"no image, it begins with {content[:8]!r}"
        raise UnidentifiedImageError(kind if content else "an empty file") from error


FILES_PER_PART = 4096
"""Files that a process measures at a time; fewer files are measured in this process."""
UNREADABLE = (0, 0)


def image_sizes(files: list[str]) -> NDArray[np.int64]:
    """Return heights and widths (N, 2) in px of image files; (0, 0) for those that do not open.

    A header that says so is enough: the pixels are not decoded. Orientation marks of cameras are
    not applied, as in Pillow.
    """
    parts = [files[i : i + FILES_PER_PART] for i in range(0, len(files), FILES_PER_PART)]
    num_processes = min(len(os.sched_getaffinity(0)), len(parts))
    if num_processes < 2:
        return _sizes(files)
    with ProcessPoolExecutor(num_processes, mp_context=get_context("fork")) as pool:
        return np.concatenate(list(pool.map(_sizes, parts)))


def _sizes(files: list[str]) -> NDArray[np.int64]:
    return np.array([image_size(file) for file in files], dtype=np.int64).reshape(-1, 2)


def image_size(file: str) -> tuple[int, int]:
    """Return height and width in px, (0, 0) if the file does not open as an image."""
    try:
        with Image.open(file) as image:
            return image.height, image.width
    except DECODE_ERRORS:
        return UNREADABLE
