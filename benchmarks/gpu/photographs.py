"""Generated photographs, and one thread to read them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch and OpenCV to the calling thread."""
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def write_photographs(folder: Path, number: int) -> Path:
    """Write JPEG files of 500 x 375 px with a spectrum like that of photographs."""
    generator = np.random.default_rng(0)
    for place in range(number):
        image = np.full((375, 500, 3), 128.0, dtype=np.float32)
        for octave in range(2, 9):
            noise = generator.standard_normal((2**octave, 2**octave, 3), dtype=np.float32)
            image += 150 / 2**octave * cv2.resize(noise, (500, 375), interpolation=cv2.INTER_CUBIC)
        pixels = image.clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{place:04}.jpg", quality=95)
    return folder
