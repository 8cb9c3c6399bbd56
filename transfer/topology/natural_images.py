"""A few dozen photographs from the folders at hand, whatever data sets lie there."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

SUFFIXES = {".jpg", ".jpeg"}
"""Photographs are JPEG files; PNG files are as often masks and drawings."""

PER_FOLDER = 4
"""Images taken from one folder, so that classes and data sets mix."""

MAX_FOLDERS = 4096
"""Folders that are looked into; a search of all of ImageNet's files would take minutes."""


def natural_images(folder: Path, *, count: int, size_px: int) -> Tensor:
    """Return up to `count` photographs below `folder`, RGB from 0 to 1: (n, 3, size_px, size_px).

    The shorter side is resized to size_px * 8 / 7 and the center is cut out, as for 256 and 224.
    Images that cannot be decoded, or are smaller than the crop, are left out. n may be 0.
    """
    pixels: list[Tensor] = []
    for path in _spread(_photographs(folder), count):
        image = _center(path, size_px)
        if image is not None:
            pixels.append(image)
        if len(pixels) == count:
            break
    return torch.stack(pixels) if pixels else torch.empty(0, 3, size_px, size_px)


def _photographs(folder: Path) -> list[Path]:
    """Return a few photographs of every folder below `folder`, in order of their names."""
    found: list[Path] = []
    for current in _folders(folder):
        files = sorted(
            entry.name
            for entry in os.scandir(current)
            if Path(entry.name).suffix.lower() in SUFFIXES and entry.is_file()
        )
        step = max(1, len(files) // PER_FOLDER)
        found += [current / name for name in files[::step][:PER_FOLDER]]
    return found


def _folders(folder: Path) -> Iterator[Path]:
    """Yield `folder` and the folders below it, nearest first, at most MAX_FOLDERS of them."""
    waiting = [folder]
    for number, current in enumerate(waiting):
        if number == MAX_FOLDERS:
            return
        if len(waiting) < MAX_FOLDERS:
            try:
                below = sorted(entry.name for entry in os.scandir(current) if entry.is_dir())
            except OSError:  # a folder of somebody else, or one that has just gone
                continue
            waiting += [current / name for name in below]
        yield current


def _spread(paths: list[Path], count: int) -> list[Path]:
    """Return the paths so that the first `count` are evenly spread over all of them."""
    step = max(1, len(paths) // max(1, count))
    return [path for start in range(step) for path in paths[start::step]]


def _center(path: Path, size_px: int) -> Tensor | None:
    """Return the center (3, size_px, size_px) of an image, or None if it is none or too small."""
    try:
        with Image.open(path) as file:
            if min(file.size) < size_px:
                return None
            image = file.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    scale = max(size_px, round(size_px * 8 / 7)) / min(image.size)
    width, height = (max(size_px, round(length * scale)) for length in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size_px) // 2, (height - size_px) // 2
    cut = image.crop((left, top, left + size_px, top + size_px))
    return torch.from_numpy(np.asarray(cut).copy()).permute(2, 0, 1).float() / 255
