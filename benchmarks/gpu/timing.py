"""Measure time and memory, find a batch that fits, generate images."""

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image

Quantities = dict[str, float | str]
"""Measured numbers by name."""
Measurement = Callable[[torch.device, Path], Quantities]
"""A measurement on a device, with an empty folder for its files."""


def seconds_per_call(
    call: Callable[[], object], device: torch.device, *, warm_up: int, calls: int
) -> float:
    """Return the mean wall time of a call in s, with device work."""
    for _ in range(warm_up):
        call()
    wait_for(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait_for(device)
    return (time.perf_counter() - start) / calls


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def with_peak_memory(measure: Callable[[], float], device: torch.device) -> tuple[float, float]:
    """Return the result of `measure` and its peak GPU memory in GB."""
    if device.type != "cuda":
        return measure(), 0.0
    torch.cuda.reset_peak_memory_stats(device)
    measured = measure()
    return measured, torch.cuda.max_memory_allocated(device) / 1e9


def first_that_fits(measure: Callable[[int], Quantities], sizes: Sequence[int]) -> Quantities:
    """Return the quantities for the first batch size that fits into memory.

    OutOfMemoryError if none fits.
    """
    for size in sizes[:-1]:
        try:
            return measure(size)
        except torch.OutOfMemoryError:
            pass
        # only now, the error and the tensors in its frames are freed
        gc.collect()
        torch.cuda.empty_cache()
    return measure(sizes[-1])


def write_images(folder: Path, number: int) -> Path:
    """Write 500 x 375 px JPEG files with a natural image spectrum."""
    generator = np.random.default_rng(0)
    for index in range(number):
        image = np.full((375, 500, 3), 128.0, dtype=np.float32)
        for octave in range(2, 9):
            noise = generator.standard_normal((2**octave, 2**octave, 3), dtype=np.float32)
            image += 150 / 2**octave * cv2.resize(noise, (500, 375), interpolation=cv2.INTER_CUBIC)
        pixels = image.clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index:04}.jpg", quality=95)
    return folder
