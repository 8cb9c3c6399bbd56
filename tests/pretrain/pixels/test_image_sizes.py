"""Sizes from headers are those of Pillow, for sound and for damaged files."""

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


def size_by_pillow(file: Path) -> tuple[int, int]:
    try:
        with Image.open(file) as image:
            return image.height, image.width
    except (OSError, Image.DecompressionBombError):
        return (0, 0)


def noise(height: int, width: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("extra", [0, 60_000])
def test_sizes_of_jpegs(tmp_path: Path, mode: str, progressive: bool, extra: int) -> None:
    """Previews and profiles may stand before the size, which is then far behind the first bytes."""
    file = tmp_path / "image.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees; neither Pillow nor this code turns it back
    noise(24, 40).convert(mode).save(
        file, progressive=progressive, exif=exif, icc_profile=bytes(extra) or None
    )
    assert image_size(str(file)) == size_by_pillow(file) == (24, 40)


@pytest.mark.parametrize("suffix", ["png", "webp", "bmp", "ppm", "tif"])
def test_sizes_of_other_formats_and_of_a_wrong_suffix(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"image.{suffix}"
    noise(24, 40).save(file)
    assert image_size(str(file)) == (24, 40)
    file.rename(tmp_path / "image.jpg")
    assert image_size(str(tmp_path / "image.jpg")) == (24, 40)


def test_a_cut_jpeg_opens_as_often_as_for_pillow(tmp_path: Path) -> None:
    file = tmp_path / "image.jpg"
    noise(24, 40).save(file)
    content = file.read_bytes()
    cut = tmp_path / "cut.jpg"
    for length in range(0, min(len(content), 800), 7):
        cut.write_bytes(content[:length])
        assert image_size(str(cut)) == size_by_pillow(cut), length


def test_too_many_pixels_are_left_to_pillow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "image.jpg"
    noise(24, 40).save(file)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 40 // 2 - 1)
    assert image_size(str(file)) == size_by_pillow(file) == (0, 0)


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
