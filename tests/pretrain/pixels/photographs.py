"""Photo-like images (smooth with some detail), also as JPEG files."""

import io

import cv2
import numpy as np
from PIL import Image

from pretrain.pixels.decoding import Pixels


def photograph(height: int = 64, width: int = 64, seed: int = 0) -> Pixels:
    """Return pixels (H, W, 3), uint8.

    High frequencies have lower amplitudes.
    """
    generator = np.random.default_rng(seed)
    image = np.full((height, width, 3), 0.5, np.float32)
    for side, strength in ((3, 0.2), (8, 0.1), (24, 0.05), (96, 0.03)):
        noise = generator.standard_normal((side, side, 3)).astype(np.float32)
        image += strength * cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return (255 * image.clip(0, 1)).round().astype(np.uint8)


def as_jpeg(pixels: Pixels, quality: int = 90) -> bytes:
    """Return the content of a JPEG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()
