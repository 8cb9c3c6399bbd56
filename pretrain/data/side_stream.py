"""Batches made on a stream of their own, while a GPU still trains on the batch before.

The arrays of a batch go to the device in one copy.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from math import prod
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Made = TypeVar("Made")


def made_aside(
    batches: Generator[Made, None, None], device: torch.device
) -> Generator[Made, None, None]:
    """Yield batches that a GPU makes while it trains; a CPU makes them as they are asked for.

    Ask for a batch when the work on the one before has been given to the current stream. The memory
    of a batch is used again for the next but one.
    """
    with closing(batches):
        if device.type != "cuda":
            yield from batches
            return
        side, training = torch.cuda.Stream(device), torch.cuda.current_stream(device)
        # torch gives the memory of a batch to later work of the side stream, but knows nothing of
        # the step that reads it: so this holds the batch until the side stream has waited for that
        held: list[Made] = []
        finished: list[torch.cuda.Event] = []
        while True:
            if len(held) == 2:
                side.wait_event(finished.pop(0))
                held.pop(0)
            with torch.cuda.stream(side):
                made = next(batches, None)
            if made is None:
                return
            held.append(made)
            training.wait_event(side.record_event())
            yield made
            finished.append(training.record_event())


DTYPES = {np.dtype(np.int64): torch.int64, np.dtype(np.float32): torch.float32}
ALIGNMENT_BYTES = 8
"""Arrays start at multiples of the largest type's size, as torch's views of bytes require."""

Array = NDArray[np.int64] | NDArray[np.float32]


def pack(arrays: Sequence[Array]) -> Tensor:
    """Return a buffer (bytes,), uint8, of arrays of int64 or float32 and of any shapes."""
    header = [len(arrays)]
    for array in arrays:
        header += [list(DTYPES).index(array.dtype), array.ndim, *array.shape]
    parts = [np.array([len(header), *header], dtype=np.int64), *arrays]
    buffer = np.zeros(sum(_padded_bytes(part.nbytes) for part in parts), dtype=np.uint8)
    start = 0
    for part in parts:
        stop = start + part.nbytes
        buffer[start:stop] = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        start += _padded_bytes(part.nbytes)
    return torch.from_numpy(buffer)


def unpack(buffer: Tensor, device: torch.device) -> list[Tensor]:
    """Return the arrays of a buffer (bytes,) that `pack` made: views of one copy on a device."""
    numbers = buffer.view(torch.int64)
    length = int(numbers[0])
    num_arrays, *header = numbers[1 : 1 + length].tolist()
    copied = buffer.to(device, non_blocking=True)
    start = _padded_bytes(8 * (1 + length))
    arrays: list[Tensor] = []
    for _ in range(num_arrays):
        number, num_axes, *header = header
        shape, header = header[:num_axes], header[num_axes:]
        dtype = list(DTYPES.values())[number]
        stop = start + prod(shape) * dtype.itemsize
        arrays.append(copied[start:stop].view(dtype).view(shape))
        start = _padded_bytes(stop)
    return arrays


def _padded_bytes(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
