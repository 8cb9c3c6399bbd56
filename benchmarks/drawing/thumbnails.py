"""Thumbnails of images, as records hold them."""

import base64
import binascii
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def pixels(jpeg_base64: str) -> "np.ndarray[Any, Any]":
    """Return a thumbnail as an array (H, W, 3)."""
    import numpy as np
    from PIL import Image

    try:
        content = base64.b64decode(jpeg_base64, validate=True)
    except binascii.Error as error:
        raise ValueError("a thumbnail is no base64") from error
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))
