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


Array = NDArray[np.int64] | NDArray[np.float32]


def pack(arrays: Sequence[Array]) -> Tensor:
    """Return a buffer (bytes,), uint8, of arrays of int64 or float32 and of any shapes."""
    shapes = [n for array in arrays for n in (array.dtype == np.float32, array.ndim, *array.shape)]
    parts = [np.array([len(arrays), len(shapes)]), np.array(shapes, dtype=np.int64), *arrays]
    # each starts at a multiple of the largest type's size, as torch's views of bytes require
    flat = (np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts)
    return torch.from_numpy(np.concatenate([np.pad(part, (0, -len(part) % 8)) for part in flat]))


def unpack(buffer: Tensor, device: torch.device) -> list[Tensor]:
    """Return the arrays of a buffer (bytes,) that `pack` made: views of one copy on a device."""
    num_arrays, length = buffer[:16].view(torch.int64).tolist()
    start = 16 + 8 * length
    shapes = buffer[16:start].view(torch.int64).tolist()
    copied = buffer.to(device, non_blocking=True)
    arrays: list[Tensor] = []
    for _ in range(num_arrays):
        is_float, num_axes, *shapes = shapes
        shape, shapes = shapes[:num_axes], shapes[num_axes:]
        dtype = torch.float32 if is_float else torch.int64
        stop = start + prod(shape) * dtype.itemsize
        arrays.append(copied[start:stop].view(dtype).view(shape))
        start = stop + -stop % 8
    return arrays
