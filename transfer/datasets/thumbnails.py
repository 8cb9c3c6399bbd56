"""What a record holds of a single image, so that a figure can show it without the data."""

import base64
import io
from typing import Any

from PIL import Image

from transfer.datasets.images import Images

LONGEST_PX = 64
JPEG_QUALITY = 60
"""Quality of the thumbnails: one takes about 1.7 kB in base64, of CIFAR 1.1 kB."""


def describe_image(images: Images, index: int) -> dict[str, Any]:
    """Return index, label, class, path below the data folder and thumbnail of an image."""
    image, label = images[index]
    return {
        "index": index,
        "label": label,
        "class": images.class_names[label],
        "file": images.name(index),
        "jpeg_base64": thumbnail(image),
    }


def thumbnail(image: Image.Image) -> str:
    """Return a JPEG of the image in base64, reduced to LONGEST_PX if it is larger."""
    small = image.copy()
    small.thumbnail((LONGEST_PX, LONGEST_PX))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=JPEG_QUALITY)
    return base64.b64encode(buffer.getvalue()).decode()
