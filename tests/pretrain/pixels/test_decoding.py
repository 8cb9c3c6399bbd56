"""Decoded pixels against Pillow's."""

import io

import numpy as np
import pytest
from PIL import Image

from pretrain.pixels.decoding import DECODE_ERRORS, decode
from tests.pretrain.pixels.photographs import as_jpeg, photograph


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_of_any_color_space_has_pillows_pixels(mode: str) -> None:
    file = io.BytesIO()
    Image.fromarray(photograph()).convert(mode).save(file, "JPEG")
    expected = np.asarray(Image.open(file).convert("RGB"))
    assert np.array_equal(decode(file.getvalue()), expected)


def test_a_png_of_any_mode_has_pillows_pixels(subtests: pytest.Subtests) -> None:
    for mode in ["RGBA", "P", "L", "1"]:
        with subtests.test(mode=mode):
            file = io.BytesIO()
            Image.fromarray(photograph()).convert(mode).save(file, "PNG")
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
