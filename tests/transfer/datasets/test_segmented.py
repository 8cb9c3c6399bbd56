"""Masks in all the ways in which tools save class ids."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from transfer.datasets.expected import DataError
from transfer.datasets.segmented import IGNORED, Mask, read_mask, voc_colors, voc_palette

ORDER = np.random.default_rng(0).permutation(256)
"""Class of each index of a permuted palette."""


@pytest.fixture
def mask() -> Mask:
    classes = np.random.default_rng(1).integers(0, 21, (30, 40)).astype(np.uint8)
    classes[0] = IGNORED
    return classes


def with_palette(indices: Mask, palette: bytes) -> Image.Image:
    image = Image.fromarray(indices)
    image.putpalette(palette)
    return image


def in_colors(mask: Mask) -> Image.Image:
    return with_palette(mask, voc_palette()).convert("RGB")


def permuted(mask: Mask) -> Mask:
    return np.argsort(ORDER).astype(np.uint8)[mask]


SAVED: dict[str, Callable[[Mask], Image.Image]] = {
    "VOC's palette": lambda mask: with_palette(mask, voc_palette()),
    "21 colors": lambda mask: with_palette(mask, voc_palette()[:63]),
    "white outlines": lambda mask: with_palette(mask, voc_palette()[:765] + b"\xff" * 3),
    "gray palette": lambda mask: with_palette(
        mask, np.arange(256).repeat(3).astype("u1").tobytes()
    ),
    "permuted palette": lambda mask: with_palette(
        permuted(mask), voc_colors()[ORDER].astype("u1").tobytes()
    ),
    "permuted gray palette": lambda mask: with_palette(
        permuted(mask), ORDER.repeat(3).astype("u1").tobytes()
    ),
    "palette of an editor": lambda mask: in_colors(mask).quantize(64),
    "gray levels": Image.fromarray,
    "gray levels in RGB": lambda mask: Image.fromarray(mask).convert("RGB"),
    "RGB": in_colors,
    "RGBA": lambda mask: in_colors(mask).convert("RGBA"),
}


@pytest.mark.parametrize("kind", SAVED)
def test_classes_are_read(kind: str, mask: Mask, tmp_path: Path) -> None:
    SAVED[kind](mask).save(tmp_path / "mask.png")
    assert np.array_equal(read_mask(tmp_path / "mask.png"), mask)


REFUSED: dict[str, tuple[Callable[[Mask], Image.Image], str]] = {
    "other palette": (lambda mask: with_palette(mask, bytes(range(100, 163))), "(100, 101, 102)"),
    "other colors": (lambda mask: in_colors(mask).point(lambda v: v ^ 1), "(1, 1, 1)"),
    "permuted palette without 255": (
        lambda mask: with_palette(mask, voc_palette()[:63][::-1]),
        "lacks the color of 255",
    ),
    "black and white": (lambda mask: Image.fromarray(mask > 0), "mode 1"),
    "transparent": (lambda mask: Image.new("RGBA", (40, 30)), "mode RGBA"),
    "16 bits": (lambda mask: Image.fromarray(mask.astype(np.uint16)), "mode I;16"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_unknown_colors_are_refused(kind: str, mask: Mask, tmp_path: Path) -> None:
    image, reason = REFUSED[kind]
    image(mask).save(tmp_path / "mask.png")
    with pytest.raises(DataError) as error:
        read_mask(tmp_path / "mask.png")
    assert str(tmp_path / "mask.png") in str(error.value)
    assert reason in str(error.value)


def test_gray_of_4_bits_is_refused(tmp_path: Path) -> None:
    """Pillow multiplies levels by 17, so class 15 would be ignored."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 4, 1, 4, 0, 0, 0, 0))]
    chunks += [(b"IDAT", zlib.compress(b"\0\x01\x2f")), (b"IEND", b"")]
    content = b"\x89PNG\r\n\x1a\n"
    for name, data in chunks:
        content += struct.pack(">I", len(data)) + name + data
        content += struct.pack(">I", zlib.crc32(name + data))
    (tmp_path / "mask.png").write_bytes(content)
    with pytest.raises(DataError, match="fewer than 8 bits"):
        read_mask(tmp_path / "mask.png")
