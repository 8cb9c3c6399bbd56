"""Thumbnails of images for records."""

import base64
import io

from PIL import Image

from transfer.datasets.images import thumbnail


def test_a_thumbnail_is_a_small_jpeg_of_the_image() -> None:
    image = Image.new("RGB", (300, 150), (200, 30, 30))
    with Image.open(io.BytesIO(base64.b64decode(thumbnail(image)))) as found:
        assert (found.format, found.size) == ("JPEG", (64, 32))
        red, green, _ = found.convert("RGB").resize((1, 1)).getpixel((0, 0))  # type: ignore[misc]
    assert (abs(red - 200) < 9, abs(green - 30) < 9) == (True, True)
    assert image.size == (300, 150)
