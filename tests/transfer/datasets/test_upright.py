"""Orientations against Pillow's own answer."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from transfer.datasets.expected import DataError
from transfer.datasets.images import decode_upright, upright_size


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(10))
def test_images_and_their_sizes_are_those_that_pillow_turns(
    orientation: int, kind: str, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(31, 45, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[274] = orientation
    file = tmp_path / "image"
    Image.fromarray(pixels).save(file, kind, exif=exif)
    with Image.open(file) as image:
        turned = ImageOps.exif_transpose(image)
    assert np.array_equal(np.asarray(decode_upright(file)), np.asarray(turned))
    assert upright_size(file) == turned.size


def test_a_file_that_is_no_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "image.jpg").write_bytes(b"\xff\xd8\xff\xe0cut")
    for read in (decode_upright, upright_size):
        with pytest.raises(DataError, match=r"image\.jpg"):
            read(tmp_path / "image.jpg")
