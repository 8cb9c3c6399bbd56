"""The content of an image file as RGB pixels.

Pillow decides what is readable; simplejpeg gives the same pixels of a JPEG in half the time.
"""

import io
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

JPEG_START = b"\xff\xd8\xff"
SAME_AS_PILLOW = ("Gray", "YCbCr", "RGB")
"""JPEG color spaces of which simplejpeg decodes the same pixels as Pillow, unlike CMYK."""
DECODE_ERRORS = (OSError, SyntaxError, ValueError, UnidentifiedImageError)
"""Errors of `decode` for content that is no readable image."""

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
