"""Batches on their way to another process: tensors in shared memory, or copied where that is full.

Shared memory costs no copy, but containers often have only 64 MB of it. A tensor that finds no room
there travels through the connection of its process.
"""

import shutil
import sys
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SHARED_MEMORY = Path("/dev/shm")
RESERVE_BYTES = 2**24
"""Bytes that are left to others in shared memory, such as NCCL."""
ENOUGH_BYTES = 2**30
"""Shared memory with which copies are rare, so that nothing is said about them."""
LARGER = "docker run --shm-size=8g; mount -o remount,size=8g /dev/shm"


def pack_batch(batch: object) -> memoryview:
    """Return a batch as bytes for pickle.loads in another process."""
    return _Packer.dumps(batch, protocol=5)


@cache
def note_small_shared_memory() -> None:
    """Print one line, once per process, if tensors will often find no room in shared memory."""
    total = shutil.disk_usage(SHARED_MEMORY).total
    if total < ENOUGH_BYTES:
        print(
            f"note: {SHARED_MEMORY} has {total / 1e6:,.0f} MB; batches that find no room there are "
            f"copied, which is slower; make it larger ({LARGER})",
            file=sys.stderr,
            flush=True,
        )


class _Packer(ForkingPickler):
    """Pickler of a batch that copies tensors for which shared memory has no room."""

    def reducer_override(self, value: object) -> Any:
        """Return how to restore a tensor from a copy; NotImplemented for everything else."""
        if not isinstance(value, Tensor) or not _is_plain(value) or _move_to_shared_memory(value):
            return NotImplemented
        content = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _restore, (content, value.dtype, tuple(value.shape))


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is nothing but numbers in the memory of this machine."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.numel() > 0
        and not tensor.requires_grad
    )


def _move_to_shared_memory(tensor: Tensor) -> bool:
    """Move a tensor to shared memory; return whether there was room."""
    size = tensor.untyped_storage().nbytes()
    if not tensor.is_shared() and shutil.disk_usage(SHARED_MEMORY).free < size + RESERVE_BYTES:
        return False
    try:
        tensor.share_memory_()
    except RuntimeError:  # other processes were faster
        return False
    return True


def _restore(content: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(content).view(dtype).reshape(shape)
