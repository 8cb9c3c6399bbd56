"""The safetensors format: the length of the header in 8 bytes, the header in JSON, the numbers."""

import json
import pickle
import struct
from typing import Any

import torch

from transfer.convert.architectures import BackboneError
from transfer.convert.messages import shorten
from transfer.convert.rebuilt import check_shape, check_sizes, num_values_of
from transfer.convert.stored import Storage, StoredTensor, copy_values

MAX_HEADER_BYTES = 2**24
"""Longest header; 10,000 tensors take about a tenth."""

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
}


def is_safetensors(data: memoryview) -> bool:
    """Return whether a header of a possible length follows; no other format starts like that.

    The length itself may start with any byte, also with those that other formats start with.
    """
    header_bytes = int.from_bytes(data[:8], "little")
    return bytes(data[8:9]) == b"{" and header_bytes <= min(MAX_HEADER_BYTES, len(data) - 8)


def read_safetensors(data: memoryview) -> Any:
    """Return {name: StoredTensor}; for our own files, the tree that torch.save would have stored.

    As the format demands, the tensors follow each other without gaps and fill the file.
    """
    try:
        return _read(data)
    except BackboneError:
        raise
    except (
        *(ValueError, TypeError, LookupError, AttributeError, RecursionError, MemoryError),
        *(struct.error, pickle.UnpicklingError),
    ) as error:
        raise BackboneError(
            f"the safetensors file is cut off or damaged ({str(error)[:300]}); fetch it again and "
            f"compare its size with the source"
        ) from error


def _read(data: memoryview) -> Any:
    (header_bytes,) = struct.unpack_from("<Q", data)
    if header_bytes > min(MAX_HEADER_BYTES, len(data) - 8):
        raise ValueError(f"its header should have {header_bytes:,} bytes")
    numbers = data[8 + header_bytes :]
    header = json.loads(bytes(data[8 : 8 + header_bytes]), object_pairs_hook=_distinct)
    metadata = header.pop("__metadata__", {})
    spans: list[tuple[int, int]] = []
    tensors = {name: _tensor(numbers, spans, **fields) for name, fields in header.items()}
    position = 0
    for start, end in sorted(spans):
        if start != position:
            raise ValueError(f"a tensor starts at byte {start}, the one before ends at {position}")
        position = end
    if position != len(numbers):
        raise ValueError(f"the tensors end at byte {position} of {len(numbers)}")
    if kinds := {type(value).__name__ for value in metadata.values()} - {"str"}:
        raise ValueError(f"its metadata hold {', '.join(sorted(kinds))} instead of text")
    if metadata.get("format", "").startswith("ssl-backbone"):
        # our own file: metadata can only hold text, so structured fields are stored as JSON
        structured = {name: json.loads(metadata[name]) for name in ("input", "made_by")}
        return {**metadata, **structured, "state_dict": tensors}
    return tensors


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict; ValueError if two have the same name."""
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"two entries are called {shorten(name)}")
        content[name] = value
    return content


def _tensor(
    numbers: memoryview, spans: list[tuple[int, int]], *, dtype: str, shape: Any, data_offsets: Any
) -> StoredTensor:
    sizes = check_shape(shape)
    start, end = check_sizes(data_offsets)
    kind = _DTYPES[dtype]
    num_values = num_values_of(sizes)
    if not start <= end <= len(numbers) or end - start != num_values * kind.itemsize:
        raise ValueError(f"a tensor lies at bytes {start} to {end} of {len(numbers)}")
    spans.append((start, end))
    storage = Storage(numbers, start, num_values, kind)
    steps = tuple(num_values_of(sizes[axis + 1 :]) for axis in range(len(sizes)))
    return StoredTensor(kind, sizes, lambda: copy_values(storage, 0, sizes, steps))
