"""Decoded pixels against Pillow's, and sizes of many images."""

import io
import os
import signal
import struct
import threading
import time
from multiprocessing import active_children
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import pretrain.pixels.decoding
from pretrain.pixels.decoding import DECODE_ERRORS, decode, image_size, image_sizes
from pretrain.running import stop
from pretrain.running.host_memory import SHARERS
from tests.pretrain.pixels.photographs import as_jpeg, photograph


def test_a_file_of_any_color_space_has_pillows_pixels(subtests: pytest.Subtests) -> None:
    for kind in (
        "JPEG RGB",
        "JPEG L",
        "JPEG CMYK",
        "PNG RGBA",
        "PNG P",
        "PNG L",
        "PNG 1",
        "PNG LA",
        "TIFF CMYK",
        "TIFF YCbCr",
        "TIFF LAB",
    ):
        with subtests.test(kind=kind):
            suffix, mode = kind.split()
            file = io.BytesIO()
            Image.fromarray(photograph()).convert(mode).save(file, suffix)
            expected = np.asarray(Image.open(file).convert("RGB"))
            assert np.array_equal(decode(file.getvalue()), expected)


GRAY = np.arange(256, dtype=np.uint8).reshape(8, 32)
GRAY_16 = GRAY.astype(np.uint16) * 257
"""The same picture with 16 bits."""


def encoded(image: Image.Image, suffix: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, suffix, **options)
    return file.getvalue()


def tiff(pixels: bytes, *, bits: int, photometric: int = 1) -> bytes:
    """Return a TIFF of 8 x 32 gray pixels.

    Photometric 0: zero is white.
    """
    header = 8 + 2 + 9 * 12 + 4
    tags = {256: 32, 257: 8, 258: bits, 259: 1, 262: photometric}
    tags |= {273: header, 277: 1, 278: 8, 279: len(pixels)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + pixels


def packed_12_bits(levels: NDArray[Any]) -> bytes:
    pairs = levels.reshape(-1, 2).astype(int).tolist()
    return b"".join((first << 12 | second).to_bytes(3, "big") for first, second in pairs)


def test_gray_of_more_than_8_bits_is_scaled(subtests: pytest.Subtests) -> None:
    little, big = Image.fromarray(GRAY_16), Image.fromarray(GRAY_16.astype(">u2"))
    levels_10 = np.round(GRAY / 255 * 1023).astype(">u2")
    files = {
        "PNG": encoded(little, "PNG"),
        "PNG, low byte 0": encoded(Image.fromarray(GRAY.astype(np.uint16) << 8), "PNG"),
        "TIFF": encoded(little, "TIFF"),
        "TIFF, big-endian": encoded(big, "TIFF"),
        "TIFF, compressed": encoded(big, "TIFF", compression="tiff_lzw"),
        "TIFF, zero is white": tiff((65535 - GRAY_16).tobytes(), bits=16, photometric=0),
        "TIFF of 12 bits": tiff(packed_12_bits(GRAY_16 >> 4), bits=12),
        "PGM": b"P5 32 8 65535\n" + GRAY_16.astype(">u2").tobytes(),
        "PGM of 10 bits": b"P5 32 8 1023\n" + levels_10.tobytes(),
        "PGM in text": b"P2 32 8 65535\n" + b" ".join(b"%d" % v for v in GRAY_16.ravel()) + b"\n",
        "JPEG 2000": encoded(little, "JPEG2000"),
    }
    for kind, content in files.items():
        with subtests.test(kind=kind):
            assert np.array_equal(decode(content), np.repeat(GRAY[..., None], 3, axis=2))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_values_without_a_range_are_refused_with_their_mode(dtype: type, tmp_path: Path) -> None:
    file = tmp_path / "image.tiff"
    Image.fromarray(GRAY.astype(dtype)).save(file)
    with pytest.raises(ValueError, match=r"mode [IF]: .*no defined white"):
        decode(file.read_bytes())
    assert image_size(str(file)) == (0, 0)


@pytest.mark.filterwarnings("error")
def test_transparency_of_a_palette_changes_no_color() -> None:
    image = Image.fromarray(photograph()).quantize(16)
    expected = np.asarray(image.convert("RGB"))
    for transparency in (3, bytes(range(16))):
        content = encoded(image, "PNG", transparency=transparency)
        assert np.array_equal(decode(content), expected)


def test_what_is_no_whole_image_is_one_of_the_known_errors(subtests: pytest.Subtests) -> None:
    for content in [
        b"",
        b"no image",
        as_jpeg(photograph())[:600],
        b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
    ]:
        with subtests.test(content=content), pytest.raises(DECODE_ERRORS):
            decode(content)


def test_unreadable_image_has_size_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "image.jpg"
    assert image_size(str(file)) == (0, 0)
    Image.new("RGB", (40, 24)).save(file, format="webp")
    assert image_size(str(file)) == (24, 40)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 40 // 2 - 1)
    assert image_size(str(file)) == (0, 0)
    with pytest.raises(DECODE_ERRORS):
        decode(file.read_bytes())
    for header in (b"no image", b"P6\n"):
        file.write_bytes(header)
        assert image_size(str(file)) == (0, 0)


def test_several_processes_give_the_sizes_in_the_order_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [str(tmp_path / f"{number}.png") for number in range(23)]
    for number, file in enumerate(files):
        Image.new("L", (number + 1, 7)).save(file)
    files.append(str(tmp_path / "absent.png"))
    single = image_sizes(files)
    monkeypatch.setattr(pretrain.pixels.decoding, "FILES_PER_CHUNK", 5)
    assert np.array_equal(image_sizes(files), single)
    assert single.tolist() == [[7, number + 1] for number in range(23)] + [[0, 0]]


def test_parallel_runs_share_the_cores_that_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain.pixels.decoding, "FILES_PER_CHUNK", 1)
    monkeypatch.setattr(pretrain.pixels.decoding, "ProcessPoolExecutor", Mock())
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setenv(SHARERS, "2")
    assert image_sizes(["absent"] * 3).tolist() == [[0, 0]] * 3


def test_a_signal_ends_all_processes_that_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(file: str) -> tuple[int, int]:
        time.sleep(0.05)
        return (1, 1)

    monkeypatch.setattr(pretrain.pixels.decoding, "FILES_PER_CHUNK", 1)
    monkeypatch.setattr(pretrain.pixels.decoding, "image_size", slow)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    monkeypatch.setattr(stop, "_received_signals", [])
    stop.listen(at_once=True)
    with pytest.raises(stop.Stopped):
        image_sizes(["absent"] * 1000)  # 25 s of work
    assert active_children() == []
