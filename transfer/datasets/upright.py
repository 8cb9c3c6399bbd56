"""Images turned upright by their EXIF orientation, whose pixels the annotations count."""

import io
import struct
from pathlib import Path

from PIL import Image

from transfer.datasets.images import decode, name_in_errors

EXIF_ORIENTATION = 274
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The operation that undoes each EXIF orientation."""
QUARTER_TURNS = (5, 6, 7, 8)
"""Orientations that exchange width and height."""


def decode_upright(file: Path) -> Image.Image:
    """Return the upright RGB image; DataError names a file that cannot be read."""
    with name_in_errors(file):
        content = file.read_bytes()
        image = decode(content)
        with Image.open(io.BytesIO(content)) as header:
            turn = UPRIGHT.get(_orientation(header))
    return image if turn is None else image.transpose(turn)


def upright_size(file: Path) -> tuple[int, int]:
    """Return width and height in px, read from the first bytes; DataError names a bad file."""
    with name_in_errors(file), Image.open(file) as header:
        width, height = header.size
        turned = _orientation(header) in QUARTER_TURNS
    return (height, width) if turned else (width, height)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(EXIF_ORIENTATION, 1))
    except (OSError, SyntaxError, TypeError, ValueError, struct.error):
        return 1  # damaged EXIF data says nothing about the orientation
