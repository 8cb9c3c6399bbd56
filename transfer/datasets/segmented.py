"""Splits of segmentation datasets: images with class masks."""

import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pretrain.running.atomic_files import write_whole
from pretrain.running.reading import read_bytes
from transfer.datasets.expected import DataError
from transfer.datasets.images import ImageFiles, ImageSplit, encode_names, upright_size

IGNORED = 255
"""Mask value of outlines and unlabeled pixels, which are never counted."""
Mask = NDArray[np.uint8]
"""Class of each pixel (H, W); 0 is background."""
THREADS = 8


class Segmented(ImageSplit):
    """One split of a segmentation dataset."""

    source: ImageFiles

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        mask_names: Sequence[str],
        class_names: Sequence[str],
        *,
        notes: Sequence[str] = (),
    ) -> None:
        self.source = ImageFiles(folder, encode_names(names))
        self.masks = ImageFiles(folder, encode_names(mask_names))
        self.class_names = tuple(class_names)
        self.notes = tuple(notes)
        """Remarks about the origin of the masks."""

    @property
    def files(self) -> tuple[ImageFiles, ...]:
        """Return the files that are read on demand: images and masks."""
        return (self.source, self.masks)

    def mask(self, i: int) -> Mask:
        """Return an image's mask; raises DataError if it is missing or invalid."""
        return read_mask(self.masks.folder / self.masks.name(i))

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "Segmented":
        """Return the images with these indices, in this order."""
        names, masks = ([files.name(int(i)) for i in indices] for files in self.files)
        return Segmented(self.source.folder, names, masks, self.class_names, notes=self.notes)

    @cached_property
    def fingerprint(self) -> str:
        """Return 16 hex digits that identify classes, images and masks.

        They are a hash of class and file names, image file sizes and mask contents.
        """
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        for i in range(len(self)):
            digest.update(self.name(i).encode() + b"\0" + self.source.content(i) + b"\n")
            mask = b""  # if the file cannot be read
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                mask = read_bytes(self.masks.folder / self.masks.name(i))
            digest.update(hashlib.sha256(mask).digest())
        return digest.hexdigest()[:16]

    @cached_property
    def mask_check(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Return mask faults ("" if valid), and pixels per class (L,)."""
        with ThreadPoolExecutor(THREADS) as threads:
            results = list(threads.map(partial(_check_mask, self), range(len(self))))
        zeros = np.zeros(len(self.class_names), dtype=np.int64)
        return tuple(fault for fault, _ in results), sum((pixels for _, pixels in results), zeros)


def read_mask(file: Path) -> Mask:
    """Return the classes in a PNG; raises DataError if they cannot be determined.

    Classes are stored as palette indices with VOC's colors, or as gray levels. Since editors change
    palettes, VOC's colors with other indices or without a palette are also accepted.
    """
    try:
        with Image.open(io.BytesIO(read_bytes(file))) as image:
            is_scaled = bool(image.tile) and image.tile[0].args in SCALED_LAYOUTS
            image.load()
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{file}: cannot be decoded ({error}); replace the file") from error
    pixels: NDArray[Any] = np.array(image)
    try:
        if image.mode == "P":
            return _classes_of_palette(image)
        if image.mode == "L" and not is_scaled:
            return pixels
        if image.mode == "RGB" or (image.mode == "RGBA" and pixels[..., 3].min() == 255):
            red, green, blue = (pixels[..., k].astype(np.int64) for k in range(3))
            values, indices = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
            colors = np.stack([values >> 16, values >> 8 & 255, values & 255], axis=1)
            return np.asarray(classes_of_colors(colors)[indices.reshape(red.shape)])
    except ValueError as error:
        raise DataError(f"{file}: {error}") from error
    raise DataError(
        f"{file}: mode {image.mode}{' of fewer than 8 bits' * is_scaled}, but class ids are "
        "expected; save 8-bit palette indices or gray levels"
    )


SCALED_LAYOUTS = ("L;2", "L;4")
"""Gray modes that Pillow scales to 255, which would change class ids."""


def _classes_of_palette(image: Image.Image) -> Mask:
    """Return the classes of palette indices; raises ValueError if the colors are ambiguous."""
    indices: Mask = np.array(image)
    palette = np.array(image.getpalette("RGB"), dtype=np.int64).reshape(-1, 3)
    used = np.unique(indices)
    colored = used[used < len(palette)]  # palettes of 21 colors often lack color 255
    colors, expected = palette[colored], voc_colors()[colored]
    white = (colors == 255).all(axis=1)  # often used for ignored pixels, never for a class
    expected[white & (colored == IGNORED)] = 255
    if np.array_equal(colors, expected) or (colors == colored[:, None]).all():
        return indices
    classes = np.zeros(256, dtype=np.uint8)
    classes[colored] = classes_of_colors(colors)
    if len(colored) < len(used):
        raise ValueError(f"its palette is not in VOC's order and lacks the color of {used[-1]}")
    return classes[indices]


def classes_of_colors(colors: NDArray[np.int64]) -> Mask:
    """Return the class (n,) of each color (n, 3).

    It is VOC's palette index, or the gray level. Raises ValueError if the colors are neither all in
    VOC's palette nor all gray.
    """
    class_of = {tuple(color): k for k, color in enumerate(voc_colors().tolist())}
    rows = [tuple(color) for color in colors.tolist()]
    unknown = [row for row in rows if row not in class_of]
    if not unknown:
        return np.array([class_of[row] for row in rows], dtype=np.uint8)
    if (colors == colors[:, :1]).all():
        return colors[:, 0].astype(np.uint8)
    raise ValueError(
        f"{len(unknown)} of its {len(rows)} colors, first {unknown[0]}, are not in VOC's palette, "
        "so its classes are unknown; save the ids as 8-bit gray levels or with VOC's palette"
    )


def write_mask(file: Path, mask: Mask, option: str = "--data") -> None:
    """Write a mask atomically as a PNG with VOC's palette.

    option: the command-line option that selects the folder, for error messages.
    """
    image = Image.fromarray(mask)
    image.putpalette(voc_palette())
    content = io.BytesIO()
    image.save(content, "PNG")
    write_whole(file, content.getvalue(), option)


def voc_palette() -> bytes:
    """Return VOC's 256 colors as the bytes of a palette."""
    return voc_colors().astype(np.uint8).tobytes()


def voc_colors() -> NDArray[np.int64]:
    """Return VOC's colors (256, 3).

    Bits 0, 3, 6 of a class are the bits of its red value, starting with the highest one; bits 1,
    4, 7 are the bits of green, and bits 2, 5 of blue.
    """
    classes = np.arange(256)[:, None]
    channels = np.arange(3)
    colors = sum(((classes >> (3 * k + channels)) & 1) << (7 - k) for k in range(3))
    return np.asarray(colors)


def _check_mask(split: Segmented, i: int) -> tuple[str, NDArray[np.int64]]:
    """Return a mask's fault ("" if valid), and pixels per class (L,)."""
    num_classes = len(split.class_names)
    zeros = np.zeros(num_classes, dtype=np.int64)
    file, image_file = (files.folder / files.name(i) for files in (split.masks, split.source))
    try:
        mask = read_mask(file)
    except DataError as error:
        return str(error).removeprefix(f"{file}: "), zeros
    pixels = np.bincount(mask.ravel(), minlength=256)
    unknown = [k for k in np.flatnonzero(pixels).tolist() if num_classes <= k != IGNORED]
    if unknown:
        return (
            f"unknown ids {', '.join(map(str, unknown))}; expected 0 to {num_classes - 1}, and "
            f"{IGNORED} for pixels that do not count"
        ), zeros
    height, width = mask.shape
    size = (width, height)
    with suppress(DataError):  # the broken image itself is reported elsewhere
        size = upright_size(image_file)
    same = size == (width, height)
    fault = "" if same else f"{width} x {height} px, but its image has {size[0]} x {size[1]} px"
    return fault, pixels[:num_classes]
