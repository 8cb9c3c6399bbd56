"""Decoding to the pixels of Pillow, and a fingerprint that follows the content."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from transfer.datasets.catalog import open_split
from transfer.datasets.expected import DataError
from transfer.datasets.images import decode_file, read_class_folders


def picture(mode: str) -> Image.Image:
    rng = np.random.default_rng(0)
    rgb = Image.fromarray(rng.integers(0, 256, size=(31, 45, 3), dtype=np.uint8))
    return rgb.convert(mode)


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("RGB", "JPEG"),
        ("L", "JPEG"),
        ("CMYK", "JPEG"),
        ("RGB", "PNG"),
        ("P", "GIF"),
        ("RGBA", "PNG"),
    ],
)
def test_every_format_decodes_to_the_rgb_pixels_of_pillow(
    mode: str, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "image.jpg"
    picture(mode).save(file, kind)
    ours = decode_file(file)
    assert ours.mode == "RGB"
    with Image.open(file) as image:
        assert np.array_equal(np.asarray(ours), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("quality", [30, 75, 95])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_pixels_equal_those_of_pillow(
    quality: int, subsampling: int, progressive: bool, tmp_path: Path
) -> None:
    file = tmp_path / "image.jpg"
    picture("RGB").save(file, quality=quality, subsampling=subsampling, progressive=progressive)
    with Image.open(file) as image:
        assert np.array_equal(np.asarray(decode_file(file)), np.asarray(image))


@pytest.mark.parametrize("content", [b"", b"no image", b"\xff\xd8\xff\xe0cut"])
def test_an_undecodable_file_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.jpg"):
        decode_file(tmp_path / "broken.jpg")


def test_a_truncated_jpeg_is_named(tmp_path: Path) -> None:
    content = io.BytesIO()
    picture("RGB").save(content, "JPEG")
    (tmp_path / "cut.jpg").write_bytes(content.getvalue()[: content.tell() // 2])
    with pytest.raises(DataError, match=r"cut\.jpg.*truncated"):
        decode_file(tmp_path / "cut.jpg")


def test_a_replaced_file_changes_the_fingerprint(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("pets")
    before = open_split("pets", data, "test").fingerprint
    image = data / open_split("pets", data, "test").name(3)
    image.write_bytes(image.read_bytes() + b"\0")
    assert open_split("pets", data, "test").fingerprint != before


def test_a_changed_label_changes_the_fingerprint(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("places365")
    before = open_split("places365", data, "test").fingerprint
    listing = data / "places365" / "places365_val.txt"
    first, rest = listing.read_text().split("\n", 1)
    name, label = first.split()
    listing.write_text(f"{name} {1 - min(int(label), 1)}\n{rest}")
    assert open_split("places365", data, "test").fingerprint != before


def test_a_changed_pixel_of_an_array_changes_the_fingerprint(small_data: Path) -> None:
    images = open_split("cifar10", small_data, "test")
    again = open_split("cifar10", small_data, "test")
    assert images.fingerprint == again.fingerprint
    other = open_split("cifar10", small_data, "test")
    other.source.pixels[7, 3, 2, 1] ^= 1  # type: ignore[union-attr]
    assert other.fingerprint != images.fingerprint


def test_a_copy_with_new_times_keeps_the_fingerprint(small_data: Path, tmp_path: Path) -> None:
    shutil.copytree(small_data / "dtd", tmp_path / "dtd", copy_function=shutil.copy)
    here = open_split("dtd", small_data, "train").fingerprint
    assert open_split("dtd", tmp_path, "train").fingerprint == here


def test_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "class"
    folder.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.jpg")).touch()
    with pytest.raises(DataError, match=r"set/class/caf\\xe9.jpg': the file's name is not UTF-8"):
        read_class_folders(tmp_path, tmp_path / "set", ["class"])
