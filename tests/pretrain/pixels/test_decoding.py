"""Decoded pixels against Pillow's, and sizes of many images."""

import io
import os
import signal
import threading
import time
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pretrain.pixels.decoding
from pretrain.pixels.decoding import DECODE_ERRORS, decode, image_size, image_sizes
from pretrain.running import stop
from tests.pretrain.pixels.photographs import as_jpeg, photograph


def test_a_file_of_any_color_space_has_pillows_pixels(subtests: pytest.Subtests) -> None:
    for kind in ("JPEG RGB", "JPEG L", "JPEG CMYK", "PNG RGBA", "PNG P", "PNG L", "PNG 1"):
        with subtests.test(kind=kind):
            suffix, mode = kind.split()
            file = io.BytesIO()
            Image.fromarray(photograph()).convert(mode).save(file, suffix)
            expected = np.asarray(Image.open(file).convert("RGB"))
            assert np.array_equal(decode(file.getvalue()), expected)


def test_what_is_no_whole_image_is_one_of_the_known_errors(subtests: pytest.Subtests) -> None:
    for content in [
        b"",
        b"no image",
        as_jpeg(photograph())[:600],
        b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
    ]:
        with subtests.test(content=content), pytest.raises(DECODE_ERRORS):
            decode(content)


def test_a_size_is_height_and_width_whatever_the_suffix_and_zeros_if_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    alone = image_sizes(files)
    monkeypatch.setattr(pretrain.pixels.decoding, "FILES_PER_PART", 5)
    assert np.array_equal(image_sizes(files), alone)
    assert alone.tolist() == [[7, number + 1] for number in range(23)] + [[0, 0]]


def test_a_signal_ends_all_processes_that_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(file: str) -> tuple[int, int]:
        time.sleep(0.05)
        return (1, 1)

    monkeypatch.setattr(pretrain.pixels.decoding, "FILES_PER_PART", 1)
    monkeypatch.setattr(pretrain.pixels.decoding, "image_size", slow)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    monkeypatch.setattr(stop, "_asked", [])
    stop.listen(at_once=True)
    with pytest.raises(stop.Stopped):
        image_sizes(["absent"] * 1000)  # 25 s of work
    assert active_children() == []
