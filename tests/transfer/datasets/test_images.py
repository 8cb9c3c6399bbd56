"""Images as Pillow turns them, and a fingerprint that follows the content."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.pretrain.pixels.hidden import HIDDEN_FILES
from tests.transfer.datasets.conftest import CopyOf
from transfer.datasets.catalog import open_split
from transfer.datasets.check import check, require
from transfer.datasets.expected import DataError
from transfer.datasets.images import (
    class_names,
    decode_upright,
    read_pixels,
    thumbnail,
    upright_size,
)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_images_and_their_sizes_are_those_that_pillow_turns(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "image"
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, size=(31, 45, 3), dtype=np.uint8))
    for orientation in range(10):
        exif = Image.Exif()
        exif[274] = orientation
        picture.save(file, kind, exif=exif)
        with Image.open(file) as image:
            assert np.array_equal(read_pixels(file), np.asarray(image))
            turned = ImageOps.exif_transpose(image)
        assert np.array_equal(np.asarray(decode_upright(file)), np.asarray(turned))
        assert upright_size(file) == turned.size


@pytest.mark.parametrize("content", [b"", b"no image", b"\xff\xd8\xff\xe0cut"])
def test_an_undecodable_file_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(content)
    for read in (read_pixels, decode_upright, upright_size):
        with pytest.raises(DataError, match=r"broken\.jpg"):
            read(tmp_path / "broken.jpg")


def test_a_thumbnail_is_a_small_jpeg_of_the_image() -> None:
    image = Image.new("RGB", (300, 150), (200, 30, 30))
    with Image.open(io.BytesIO(base64.b64decode(thumbnail(image)))) as result:
        assert (result.format, result.size) == ("JPEG", (64, 32))
        red, green, _ = result.convert("RGB").resize((1, 1)).getpixel((0, 0))  # type: ignore[misc]
    assert (abs(red - 200) < 9, abs(green - 30) < 9) == (True, True)
    assert image.size == (300, 150)


def test_a_replaced_file_or_label_or_pixel_changes_the_fingerprint(
    copy_of: CopyOf, small_data: Path
) -> None:
    data = copy_of("places365")
    observed = [open_split("places365", data, "test").fingerprint]
    assert observed[0] == open_split("places365", small_data, "test").fingerprint  # a copy
    image = data / open_split("places365", data, "test").name(3)
    image.write_bytes(image.read_bytes() + b"\0")
    observed.append(open_split("places365", data, "test").fingerprint)
    listing = data / "places365" / "places365_val.txt"
    first, rest = listing.read_text().split("\n", 1)
    name, label = first.split()
    listing.write_text(f"{name} {1 - min(int(label), 1)}\n{rest}")
    observed.append(open_split("places365", data, "test").fingerprint)
    observed.append(open_split("cifar10", small_data, "test").fingerprint)
    second = open_split("cifar10", small_data, "test")
    second.source.pixels[7, 3, 2, 1] ^= 1  # type: ignore[union-attr]
    assert len({*observed, second.fingerprint}) == 5


def test_system_folders_are_not_classes(copy_of: CopyOf, small_data: Path) -> None:
    data = copy_of("birdsnap")
    folder = data / "birdsnap" / "images"
    for name in HIDDEN_FILES:
        for parent in (folder, folder / class_names(folder)[0]):
            file = parent / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (9, 5)).save(file, "PNG")
    images, expected = (open_split("birdsnap", root, "test") for root in (data, small_data))
    assert images.class_names == expected.class_names
    assert images.fingerprint == expected.fingerprint
    assert check("birdsnap", data, decode=False).ok


def test_files_of_other_suffixes_are_counted_in_a_note(copy_of: CopyOf) -> None:
    data = copy_of("birdsnap")
    first, second, *_ = sorted((data / "birdsnap" / "images").rglob("*.jpg"))
    first.rename(first.with_suffix(".heic"))
    second.rename(second.with_suffix(""))
    with pytest.raises(DataError, match=r"2 files .*: \.heic \(1\), no suffix \(1\)"):
        require("birdsnap", data, tolerated=0)


def test_a_class_may_be_called_trash(tmp_path: Path) -> None:
    for name in ("trash", "paper"):
        (tmp_path / name).mkdir()
    assert class_names(tmp_path) == ["paper", "trash"]
