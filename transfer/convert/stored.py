"""Tensors and objects of a file; values of tensors are read on demand.

So only what is used takes memory.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transfer.convert.architectures import BackboneError
from transfer.convert.messages import shorten

SPARE_BYTES = 2**29
"""Bytes by which a tensor may be larger than the storage that it repeats."""

REBUILDS = re.compile(r"rebuild|reconstruct")
"""Pattern in the names of functions that make a tensor or an array."""

NUMPY_NAMES = {
    **{torch.float64: "f8", torch.float32: "f4", torch.float16: "f2", torch.bool: "b1"},
    **{torch.int64: "i8", torch.int32: "i4", torch.int16: "i2", torch.int8: "i1"},
    **{torch.uint8: "u1", torch.uint16: "u2", torch.uint32: "u4", torch.uint64: "u8"},
    **{torch.complex64: "c8", torch.complex128: "c16"},
    # NumPy has no such types: their bits are copied and named again
    **{torch.bfloat16: "u2", torch.float8_e4m3fn: "u1", torch.float8_e5m2: "u1"},
}


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """Description of a tensor of the file; `read` reads its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    kind: str = ""
    """Module and name of its subclass of Tensor; empty for torch's own."""

    @property
    def num_values(self) -> int:
        """Number of values, the product of the shape."""
        return num_values_of(self.shape)


@dataclass(frozen=True)
class Opaque:
    """An object of the file that only a class or function of its own could make."""

    path: str
    """Module and name of the class or function."""
    holds_numbers: bool
    """True if tensors or their storages are inside, beside those that also stand elsewhere."""

    @property
    def rebuilds_tensor(self) -> bool:
        """True if it stands for one tensor, by the name of the function."""
        return REBUILDS.search(self.path.rpartition(".")[2]) is not None

    def __str__(self) -> str:
        return f"an object of {shorten(self.path)} and not a plain tensor"


class Storage:
    """A sequence of numbers in the file, of which tensors are views."""

    def __init__(
        self,
        data: memoryview,
        start: int,
        num_values: int,
        dtype: torch.dtype,
        *,
        crc: tuple[int, int, int] | None = None,
        byte_order: str = "<",
    ) -> None:
        """Describe num_values numbers from byte `start` on; crc: start, length, CRC-32 of bytes."""
        self.bytes = data[start : start + num_values * dtype.itemsize]
        self.checked: memoryview | None = data[crc[0] : crc[0] + crc[1]] if crc else None
        self.crc = crc[2] if crc else 0
        self.dtype, self.num_values, self.byte_order = dtype, num_values, byte_order
        if len(self.bytes) != num_values * dtype.itemsize:
            raise BackboneError("a tensor reaches beyond the end of the file; fetch it again")

    def values(self) -> np.ndarray:
        """Return the numbers (num_values,), in NumPy's type of as many bytes.

        BackboneError if they do not match their checksum.
        """
        if self.checked is not None and zlib.crc32(self.checked) != self.crc:
            raise BackboneError(
                "a tensor does not match its checksum; fetch the file again and compare its size "
                "with the source"
            )
        self.checked = None
        return np.frombuffer(self.bytes, np.dtype(self.byte_order + NUMPY_NAMES[self.dtype]))


def copy_values(
    storage: Storage, start: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Tensor:
    """Return a copy of part of a storage; BackboneError if it is far larger than the storage.

    start, strides: in values. Strides of 0 repeat values: a file of a few bytes can describe a
    tensor of any size.
    """
    num_bytes = num_values_of(shape) * storage.dtype.itemsize
    if num_bytes > storage.num_values * storage.dtype.itemsize + SPARE_BYTES:
        raise BackboneError(
            f"a tensor of shape {shorten(shape)} repeats {storage.num_values:,} stored values and "
            f"would take {num_bytes:,} bytes; save it again with .clone()"
        )
    values = storage.values()
    if num_bytes == 0:
        return torch.empty(shape, dtype=storage.dtype)
    last = start + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if min(start, *strides, 0) < 0 or last >= len(values):
        raise BackboneError(f"a tensor reaches value {last} of {len(values)}")
    steps = [step * values.itemsize for step in strides]
    view = np.lib.stride_tricks.as_strided(values[start:], shape, steps, writeable=False)
    own = np.array(view, dtype=view.dtype.newbyteorder("="), order="C")
    copied = torch.from_numpy(own)
    return copied if copied.dtype == storage.dtype else copied.view(storage.dtype)


def num_values_of(shape: tuple[int, ...]) -> int:
    """Return the product of the sizes."""
    product = 1
    for size in shape:
        product *= size
    return product
