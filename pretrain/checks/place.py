"""Place of the checks: a device, and a folder for what they write."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from pretrain.running.launch import Process


@dataclass(frozen=True, kw_only=True)
class Place:
    """Device and folder of the checks."""

    device: torch.device
    folder: Path

    @property
    def on_gpu(self) -> bool:
        """Return whether a GPU is checked; on a CPU the settings are small."""
        return self.device.type == "cuda"

    @property
    def process(self) -> Process:
        """Return a run's only process on this device."""
        return Process(device=self.device)


def release_memory(place: Place) -> None:
    """Give back a GPU's memory that nothing uses any more."""
    gc.collect()  # networks with hooks refer to themselves
    if place.on_gpu:
        torch.cuda.empty_cache()


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute products of float32 in float32, not in TF32 with its 10 bits of mantissa."""
    matmul, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolutions.allow_tf32, convolutions.benchmark
    matmul.allow_tf32 = convolutions.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, convolutions.allow_tf32, convolutions.benchmark = before
