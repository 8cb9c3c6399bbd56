"""One picture of a gallery, the choice of images, and thumbnails."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from PIL import Image

NUM_IMAGES = 12
SIDE_PX = 224
"""Longest side of a thumbnail."""
GAP_PX = 6
QUALITY = 72


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One picture with what it shows."""

    jpeg: bytes
    group: str
    """Kind of the outcome, such as found, missed or confused; a gallery is ordered by it."""
    caption: str
    name: str
    """File of the image below the data folder."""


def chosen_images(names: Sequence[str], number: int = NUM_IMAGES) -> list[int]:
    """Return the places of a fixed handful of images, by a hash of their file names.

    The same images are chosen for every backbone, and on every machine.
    """
    digests = [hashlib.sha256(PurePosixPath(name).name.encode()).digest() for name in names]
    return sorted(sorted(range(len(names)), key=lambda i: digests[i])[:number])


def thumbnail(image: Image.Image, side_px: int = SIDE_PX) -> Image.Image:
    """Return the image with its longest side at most so long."""
    scale = side_px / max(image.size)
    if scale >= 1:
        return image.convert("RGB")
    width, height = (max(1, round(length * scale)) for length in image.size)
    return image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)


def side_by_side(left: Image.Image, right: Image.Image) -> Image.Image:
    """Return two images of one size with a white gap between them."""
    whole = Image.new("RGB", (left.width + GAP_PX + right.width, left.height), "white")
    whole.paste(left, (0, 0))
    whole.paste(right, (left.width + GAP_PX, 0))
    return whole


def jpeg(image: Image.Image) -> bytes:
    """Return the image as a JPEG file."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()
