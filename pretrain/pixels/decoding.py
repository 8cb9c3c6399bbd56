"""Decodes image files to RGB pixels; reads image sizes.

Pillow decides which files are readable; simplejpeg returns the same pixels of a JPEG in half the
time. Pillow clips gray values of more than 8 bits to white; here they are scaled.
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

from pretrain.running.host_memory import num_sharers
from pretrain.running.reading import retry_reads

JPEG_START = b"\xff\xd8\xff"
SAME_AS_PILLOW = ("Gray", "YCbCr", "RGB")
"""JPEG color spaces that simplejpeg decodes like Pillow (not CMYK)."""
DECODE_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""Pillow's errors for unreadable images; some are raised when reading the header."""
RANGED_FORMATS = ("PPM", "PNG")
"""Formats that Pillow opens in mode I with 16-bit values.
Only in some versions of Pillow."""
BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO = 258, 262, 0
"""Tags of TIFF, and a value of the second one."""

if _limit := os.environ.get("SSL_BENCHMARK_MAX_MEGAPIXELS"):
    Image.MAX_IMAGE_PIXELS = int(float(_limit) * 1e6 / 2)  # Pillow refuses twice this number

Pixels = NDArray[Any]
"""(H, W, 3), uint8; OpenCV's type stubs do not specify dtypes."""


def decode(content: bytes) -> Pixels:
    """Decode an image file to RGB pixels (H, W, 3), uint8.

    Raises one of DECODE_ERRORS if that fails.
    """
    if content.startswith(JPEG_START):
        try:
            if simplejpeg.decode_jpeg_header(content)[2] in SAME_AS_PILLOW:
                pixels: Pixels = simplejpeg.decode_jpeg(content, "RGB")
                return pixels
        except ValueError:
            pass  # simplejpeg also rejects small flaws that Pillow accepts
    try:
        with Image.open(io.BytesIO(content)) as image:
            return rgb_pixels(image)
    except UnidentifiedImageError as error:
        if not content:
            reason = "an empty file"
        elif content.lstrip().startswith(b"<"):
            reason = "a page in HTML or XML"
        else:
            reason = f"not an image: the file starts with {content[:8]!r}"
        raise UnidentifiedImageError(reason) from error


def rgb_pixels(image: Image.Image) -> Pixels:
    """Return the RGB pixels (H, W, 3), uint8, of an opened image.

    16-bit gray values keep their highest 8 bits, as Pillow does for 16-bit colors; so do the 12
    bits of a TIFF. Raises ValueError for a mode whose values have no defined range.
    """
    require_range(image)
    if image.mode != "I" and not image.mode.startswith("I;16"):
        image.load()
        # it does not affect RGB, but Pillow warns about palettes with transparency
        image.info.pop("transparency", None)
        return np.array(image.convert("RGB"))
    tags = getattr(image, "tag_v2", {})  # of TIFF
    (bits,) = tags.get(BITS_PER_SAMPLE, (16,))
    gray = (np.array(image) >> (bits - 8)).astype(np.uint8)
    if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO:
        gray = 255 - gray
    return np.repeat(gray[..., None], 3, axis=2)


def require_range(image: Image.Image) -> None:
    """Raise ValueError if an image does not define which value is white.

    Formats in RANGED_FORMATS have 16 bits in Pillow's 32-bit mode.
    """
    if image.mode == "F" or (image.mode == "I" and image.format not in RANGED_FORMATS):
        kind = "floating-point" if image.mode == "F" else "32-bit or signed"
        raise ValueError(
            f"Pillow's mode {image.mode}: {kind} values have no defined white: "
            "save the image with 8 or 16 bits per channel"
        )


FILES_PER_CHUNK = 4096
"""Files that a process measures at a time.
Fewer files are measured in this process."""
UNREADABLE = (0, 0)


def image_sizes(files: list[str]) -> NDArray[np.int64]:
    """Return heights and widths (N, 2) of image files, in px.

    (0, 0) for unreadable files. Only headers are read; pixels are not decoded. EXIF orientation is
    not applied, as in Pillow.
    """
    chunks = [files[i : i + FILES_PER_CHUNK] for i in range(0, len(files), FILES_PER_CHUNK)]
    # the other processes of a pre-training wait for this one, so only parallel runs share the cores
    num_processes = min(len(os.sched_getaffinity(0)) // num_sharers(), len(chunks))
    if num_processes < 2:
        return _sizes(files)
    with ProcessPoolExecutor(num_processes, mp_context=get_context("fork")) as pool:
        return np.concatenate(list(pool.map(_sizes, chunks)))


def _sizes(files: list[str]) -> NDArray[np.int64]:
    return np.array([image_size(file) for file in files], dtype=np.int64).reshape(-1, 2)


def image_size(file: str) -> tuple[int, int]:
    """Return height and width of an image file, in px.

    (0, 0) if it is not a usable image. Raises ReadError if the disk cannot be read.
    """

    def measure() -> tuple[int, int]:
        with Image.open(file) as image:
            require_range(image)
            return image.height, image.width

    try:
        return retry_reads(file, measure)
    except DECODE_ERRORS:
        return UNREADABLE


def open_error(file: str) -> str:
    """Return why a file is unusable as an image, or ""."""
    try:
        with Image.open(file) as image:
            require_range(image)
    except Image.DecompressionBombError:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) / 1e6
        return (
            f"more than {limit:.0f} megapixels; to raise this limit, set the environment variable "
            "SSL_BENCHMARK_MAX_MEGAPIXELS"
        )
    except UnidentifiedImageError:
        return "not an image"
    except OSError as error:
        return error.strerror or str(error)
    except DECODE_ERRORS as error:
        return str(error)
    return ""
