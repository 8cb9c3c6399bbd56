"""Sizes of many images."""

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
from pretrain.pixels.decoding import image_size, image_sizes
from pretrain.running import stop


def test_a_size_is_height_and_width_whatever_the_suffix_and_zeros_if_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "image.jpg"
    assert image_size(str(file)) == (0, 0)
    Image.new("RGB", (40, 24)).save(file, format="webp")
    assert image_size(str(file)) == (24, 40)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 40 // 2 - 1)
    assert image_size(str(file)) == (0, 0)
    file.write_bytes(b"no image")
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
