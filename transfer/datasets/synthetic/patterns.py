"""Drawn images with a class signal that is structure, never color.

Each of the 24 kinds is a drawing on the plane: stripes, lattices of small shapes, rings, mazes. An
image shows one kind, light on dark or dark on light, at a random place, size and line width, under
a field of strong random colors, with noise and now and then a box over it. Two crops of one image
share the kind and little else. So contrastive learning (crop, flip, color jitter, grayscale, blur)
learns the kind, while the features of an untrained network follow the colors first.
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
"""Shortest and longest side of the images of most small sets."""


def _cell(x: Plane) -> Plane:
    """Return the place in the unit cell, -0.5 to 0.5."""
    return np.asarray(x - np.floor(x) - 0.5)


def _fold(x: Plane) -> Plane:
    """Return a triangle wave of period 1, 0 to 0.5."""
    return np.abs(_cell(x))


def _bar(x: Plane, y: Plane, width: float, height: float) -> Plane:
    """Return the signed depth inside a box about the origin, positive inside."""
    return np.minimum(width / 2 - np.abs(x), height / 2 - np.abs(y))


def _lobes(x: Plane, y: Plane, count: int) -> Plane:
    radius = np.hypot(x, y)
    return np.asarray(0.3 - radius + 0.16 * np.cos(count * np.arctan2(y, x)))


def _offset_rows(x: Plane, y: Plane) -> Plane:
    """Return x moved by half a period in every second row."""
    return x + 0.5 * (np.floor(y) % 2)


def _scales(x: Plane, y: Plane) -> Plane:
    """Overlapping half discs, one row over the next."""
    rows = _offset_rows(x, y)
    return np.abs(np.hypot(_cell(rows), _cell(y) + 0.5) - 0.5) * -1 + 0.13


def _woven(x: Plane, y: Plane) -> Plane:
    """Bundles of three threads, across in one cell and along in the next."""
    across = (np.floor(x) + np.floor(y)) % 2 == 0
    return np.where(across, _fold(3 * x), _fold(3 * y)) / 3 - 0.08


def _maze(x: Plane, y: Plane) -> Plane:
    """Winding bands: many plane waves of one length and all directions."""
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
"""Depth inside the ink, in cells, positive inside. x and y count cells of the lattice; u and v are
the place in the cell, -0.5 to 0.5."""


def paint(kind: int, size_px: tuple[int, int], rng: np.random.Generator) -> Pixels:
    """Draw one image (H, W, 3) of a kind; size_px is (H, W)."""
    ink = _ink(kind, size_px, rng)
    if rng.random() < 0.5:
        ink = 1 - ink
    shade = 1 - rng.uniform(0.55, 0.95) * ink
    image = (0.15 + 0.85 * _color_field(size_px, rng)) * shade[:, :, None]
    image += rng.normal(0, rng.uniform(0.01, 0.04), size=size_px)[:, :, None]
    _cover(image, rng)
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)


def kinds_of_classes(classes: int, first: int) -> list[int]:
    """Return every fifth kind, from `first` on: a set mixes easy and hard kinds.

    5 and the number of kinds have no common factor, so no kind comes twice.
    """
    return [(first + 5 * i) % len(KINDS) for i in range(classes)]


def draw_size_px(rng: np.random.Generator) -> tuple[int, int]:
    """Draw the height and width of an image."""
    height, width = rng.integers(FILE_PX[0], FILE_PX[1] + 1, size=2)
    return int(height), int(width)


def jpeg(pixels: Pixels, *, comment: str = "") -> bytes:
    """Return the image as a JPEG file, with a comment that does not touch the pixels."""
    content = BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=85, comment=comment.encode())
    return content.getvalue()


def png(pixels: Pixels) -> bytes:
    """Return the image as a PNG file."""
    content = BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def _ink(kind: int, size_px: tuple[int, int], rng: np.random.Generator) -> Plane:
    """Return ink (H, W), 0 to 1, of a kind at a random place; angle, size and width vary."""
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
    """Return colors (H, W, 3), 0 to 1, that change within an image as much as between images.

    One color per image would be the easiest way to tell images apart, and a contrastive method
    would learn that instead of the kind.
    """
    coarse = Image.fromarray(rng.integers(0, 256, size=(5, 5, 3), dtype=np.uint8))
    smooth = coarse.resize((size_px[1], size_px[0]), Image.Resampling.BICUBIC)
    return np.asarray(smooth, dtype=np.float64) / 255


def _cover(image: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Draw a box of plain color over a small part of every second image."""
    height, width = image.shape[:2]
    if rng.random() < 0.5:
        h, w = rng.integers(height // 10, height // 3), rng.integers(width // 10, width // 3)
        top, left = rng.integers(0, height - h), rng.integers(0, width - w)
        image[top : top + h, left : left + w] = rng.random(3)
