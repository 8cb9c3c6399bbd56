"""Synthetic images with classes defined by structure, not by color.

Each of the 24 kinds is a pattern on the plane: stripes, lattices of small shapes, rings, mazes. An
image shows one kind, light on dark or dark on light, with a random offset, scale and line width. It
is multiplied by a field of strong random colors; noise and sometimes a box are added. Two crops of
an image share little but the kind. Contrastive learning (crop, flip, color jitter, grayscale, blur)
therefore learns the kind, while features of an untrained network mainly depend on colors.
"""

from collections.abc import Callable
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Plane = NDArray[np.float64]
"""A coordinate, or the amount of ink, at each pixel: (H, W)."""
Pixels = NDArray[np.uint8]
"""An RGB image, (H, W, 3)."""
FILE_PX = (64, 80)
"""Minimum and maximum side of the images of most small datasets."""


def _cell(x: Plane) -> Plane:
    """Return the position in the unit cell, -0.5 to 0.5."""
    return np.asarray(x - np.floor(x) - 0.5)


def _fold(x: Plane) -> Plane:
    """Return a triangle wave of period 1, 0 to 0.5."""
    return np.abs(_cell(x))


def _bar(x: Plane, y: Plane, width: float, height: float) -> Plane:
    """Return the signed depth in a box around the origin, positive inside."""
    return np.minimum(width / 2 - np.abs(x), height / 2 - np.abs(y))


def _lobes(x: Plane, y: Plane, count: int) -> Plane:
    radius = np.hypot(x, y)
    return np.asarray(0.3 - radius + 0.16 * np.cos(count * np.arctan2(y, x)))


def _offset_rows(x: Plane, y: Plane) -> Plane:
    """Return x, shifted by half a period in every second row."""
    return x + 0.5 * (np.floor(y) % 2)


def _scales(x: Plane, y: Plane) -> Plane:
    """Rows of overlapping half discs."""
    rows = _offset_rows(x, y)
    return np.abs(np.hypot(_cell(rows), _cell(y) + 0.5) - 0.5) * -1 + 0.13


def _woven(x: Plane, y: Plane) -> Plane:
    """Bundles of three threads, alternately horizontal and vertical."""
    across = (np.floor(x) + np.floor(y)) % 2 == 0
    return np.where(across, _fold(3 * x), _fold(3 * y)) / 3 - 0.08


def _maze(x: Plane, y: Plane) -> Plane:
    """Winding bands: plane waves of one wavelength in all directions."""
    angles = np.arange(9) * np.pi / 9
    waves = [np.cos(2 * np.pi * (x * np.cos(a) + y * np.sin(a)) + 7 * a * a) for a in angles]
    return np.asarray(np.sum(waves, axis=0)) / 12


def _bricks(x: Plane, y: Plane) -> Plane:
    rows = _offset_rows(x / 1.6, 1.4 * y)
    return np.minimum(0.5 - np.abs(_cell(rows)), 0.5 - np.abs(_cell(1.4 * y))) * -1 + 0.1


KINDS: tuple[Callable[[Plane, Plane, Plane, Plane], Plane], ...] = (
    lambda x, y, u, v: _fold(1.3 * x) - 0.25,  # stripes
    lambda x, y, u, v: 0.38 - np.hypot(u, v),  # discs
    lambda x, y, u, v: _fold(1.2 * np.hypot(x, y)) - 0.25,  # rings about one center
    lambda x, y, u, v: _woven(x, y),
    lambda x, y, u, v: np.maximum(_bar(u, v, 0.8, 0.22), _bar(u, v, 0.22, 0.8)),  # plus
    lambda x, y, u, v: _fold(1.3 * x + 0.3 * np.sin(np.pi * y)) - 0.25,  # waves
    lambda x, y, u, v: _bricks(x, y),
    lambda x, y, u, v: np.minimum(v + 0.36, 0.36 - v - 2 * np.abs(u)),  # triangles
    lambda x, y, u, v: _maze(x, y),
    lambda x, y, u, v: _cell(0.8 * x) * _cell(0.8 * y) * 3,  # checks
    lambda x, y, u, v: 0.1 - np.abs(_bar(u, v, 0.7, 0.7)),  # frames
    lambda x, y, u, v: _lobes(_cell(0.8 * x), _cell(0.8 * y), 5),
    lambda x, y, u, v: _fold(7 * np.arctan2(y, x) / (2 * np.pi)) - 0.25,  # spokes
    lambda x, y, u, v: _bar(_cell(_offset_rows(x, 2 * y)), _cell(2 * y) / 2, 0.72, 0.2),  # dashes
    lambda x, y, u, v: _fold(1.3 * x + 1.6 * _fold(0.8 * y)) - 0.25,  # zigzag
    lambda x, y, u, v: _scales(x, y),
    lambda x, y, u, v: 0.09 - np.abs(np.hypot(u, v) - 0.33),  # small rings
    lambda x, y, u, v: np.maximum(_bar(u, v + 0.27, 0.8, 0.24), _bar(u, v - 0.06, 0.24, 0.7)),  # T
    lambda x, y, u, v: 0.13 - np.minimum(0.5 - _fold(x), 0.5 - _fold(y)),  # grid
    lambda x, y, u, v: (
        _fold(0.8 * np.hypot(x, y) + np.arctan2(y, x) / (2 * np.pi)) - 0.25
    ),  # spiral
    lambda x, y, u, v: _lobes(_cell(0.8 * x), _cell(0.8 * y), 3),
    lambda x, y, u, v: np.maximum(_bar(u, v - 0.28, 0.8, 0.24), _bar(u + 0.28, v, 0.24, 0.8)),  # L
    lambda x, y, u, v: _fold(1.2 * np.maximum(np.abs(x), np.abs(y))) - 0.25,  # nested squares
    lambda x, y, u, v: np.minimum(_fold(0.5 * x), _fold(1.5 * x + 0.25)) - 0.12,  # thick and thin
)
"""Signed depth in the ink, in cells, positive inside.

x, y: position in cells of the lattice; u, v: position in the cell, -0.5 to 0.5.
"""


def paint(kind: int, size_px: tuple[int, int], rng: np.random.Generator) -> Pixels:
    """Draw one image (H, W, 3) of a kind.

    size_px: H, W.
    """
    ink = _ink(kind, size_px, rng)
    if rng.random() < 0.5:
        ink = 1 - ink
    shade = 1 - rng.uniform(0.55, 0.95) * ink
    image = (0.15 + 0.85 * _color_field(size_px, rng)) * shade[:, :, None]
    image += rng.normal(0, rng.uniform(0.01, 0.04), size=size_px)[:, :, None]
    _cover(image, rng)
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)


def kinds_of_classes(classes: int, first: int) -> list[int]:
    """Return every fifth kind, which mixes easy and hard ones.

    5 and the number of kinds are coprime, so no kind is repeated.
    """
    return [(first + 5 * i) % len(KINDS) for i in range(classes)]


def draw_size_px(rng: np.random.Generator) -> tuple[int, int]:
    """Draw the height and width of an image."""
    height, width = rng.integers(FILE_PX[0], FILE_PX[1] + 1, size=2)
    return int(height), int(width)


def jpeg(pixels: Pixels, *, comment: str = "") -> bytes:
    """Return the image as a JPEG file with a comment."""
    content = BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=85, comment=comment.encode())
    return content.getvalue()


def png(pixels: Pixels) -> bytes:
    """Return the image as a PNG file."""
    content = BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def _ink(kind: int, size_px: tuple[int, int], rng: np.random.Generator) -> Plane:
    """Return ink (H, W), 0 to 1, with random position and size."""
    height, width = size_px
    cell_px = min(size_px) * rng.uniform(0.2, 0.3)
    angle = rng.uniform(-0.2, 0.2)
    rows = (np.arange(height) - height * rng.uniform(0.25, 0.75))[:, None]
    columns = (np.arange(width) - width * rng.uniform(0.25, 0.75))[None]
    x = (columns * np.cos(angle) + rows * np.sin(angle)) / cell_px
    y = (rows * np.cos(angle) - columns * np.sin(angle)) / cell_px
    depth_px = (KINDS[kind](x, y, _cell(x), _cell(y)) + rng.uniform(-0.03, 0.03)) * cell_px
    return np.clip(depth_px + 0.5, 0, 1)


def _color_field(size_px: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return random colors (H, W, 3), 0 to 1, smoothly varying.

    They vary as much within as between images. With one color per image, a contrastive method would
    distinguish images by color, not by kind.
    """
    coarse = Image.fromarray(rng.integers(0, 256, size=(5, 5, 3), dtype=np.uint8))
    smooth = coarse.resize((size_px[1], size_px[0]), Image.Resampling.BICUBIC)
    return np.asarray(smooth, dtype=np.float64) / 255


def _cover(image: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Draw a small box of one color, with probability 0.5."""
    height, width = image.shape[:2]
    if rng.random() < 0.5:
        h, w = rng.integers(height // 10, height // 3), rng.integers(width // 10, width // 3)
        y, x = rng.integers(0, height - h), rng.integers(0, width - w)
        image[y : y + h, x : x + w] = rng.random(3)
