"""Open a checkpoint of any format and list its contents, without executing any of it.

The first bytes decide the format, never the file name.
"""

import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transfer.convert.architectures import BackboneError
from transfer.convert.safe_pickle import (
    Inert,
    NeedsCodeError,
    NumpyArray,
    StoredTensor,
    load_pickle,
)
from transfer.convert.torch_file import LEGACY_MAGIC, numbers, read_legacy, read_nested, read_zip

_OTHER_FORMATS = {
    b"version https://git-lfs": "a Git LFS pointer, not the file itself: run `git lfs pull`",
    b"<": "a web page or XML, not a checkpoint: open the link in a browser and save the file",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"\x89HDF": "HDF5 (Keras); convert it to a PyTorch state dict first",
}


@dataclass(frozen=True)
class Contents:
    """The contents of a file."""

    tree: Any
    """Nested dicts and lists of the file, with tensors as StoredTensor."""
    tensors: dict[str, StoredTensor]
    """Every tensor, named by the keys that lead to it, joined by dots."""
    values: dict[str, str | int | float]
    """Plain values, named in the same way, for example {"epoch": 200, "arch": "resnet50"}."""


def read_file(path: Path) -> Contents:
    """Return the contents of a file; BackboneError if it is not a readable checkpoint."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise BackboneError(f"{what}; expected a checkpoint file")
    if path.stat().st_size == 0:
        raise BackboneError("the file is empty; fetch it again")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tree = _read_tree(path, mapped, memoryview(mapped))
    tensors: dict[str, StoredTensor] = {}
    values: dict[str, str | int | float] = {}
    for name, leaf in _leaves(tree):
        if isinstance(leaf, StoredTensor):
            if name in tensors:
                raise BackboneError(f"two tensors are called {name!r}; expected distinct names")
            tensors[name] = leaf
        elif isinstance(leaf, str | int | float):
            values[name] = leaf
    return Contents(tree, tensors, values)


def _read_tree(path: Path, mapped: mmap.mmap, data: memoryview) -> Any:
    start = bytes(data[:64])
    for magic, advice in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise BackboneError(f"this is {advice}")
    if bytes(data[257:262]) == b"ustar":
        raise BackboneError("this is a tar archive; unpack it first")
    if start.startswith(b"PK"):
        return read_zip(path, data)
    if start[8:9] == b"{" and start[:1] != b"\x80":
        return _read_safetensors(data)
    try:
        first = load_pickle(mapped, nested=read_nested)
    except NeedsCodeError:
        raise
    except BackboneError as error:
        if start.startswith(b"\x80"):
            raise
        raise BackboneError(
            f"this is no checkpoint: the file starts with {start[:16]!r}; expected a torch file "
            f"(zip or legacy), a pickle or safetensors"
        ) from error
    return read_legacy(mapped, data) if first == LEGACY_MAGIC else first


_SAFETENSORS_DTYPES = {
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
}


def _read_safetensors(data: memoryview) -> Any:
    """Return {name: StoredTensor}; for our own files, the tree that torch.save would have stored.

    Layout: the length of the header in 8 bytes, the header in JSON, the numbers.
    """
    (header_bytes,) = struct.unpack_from("<Q", data)
    base = 8 + header_bytes
    try:
        header = json.loads(bytes(data[8:base]))
        metadata = header.pop("__metadata__", {})
        tensors = {name: _slice(data, base, **fields) for name, fields in header.items()}
        if metadata.get("format", "").startswith("ssl-backbone"):
            # our own file: metadata can only hold text, so structured fields are stored as JSON
            structured = {name: json.loads(metadata[name]) for name in ("input", "made_by")}
            return {**metadata, **structured, "state_dict": tensors}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BackboneError(
            f"the safetensors file is cut off or damaged ({error}); fetch it again and compare "
            f"its size with the source"
        ) from error
    return tensors


def _slice(
    data: memoryview, base: int, *, dtype: str, shape: list[int], data_offsets: list[int]
) -> StoredTensor:
    start, end = (base + offset for offset in data_offsets)
    kind = _SAFETENSORS_DTYPES[dtype]
    stored = StoredTensor(
        kind, tuple(shape), lambda: numbers(data[start:end], kind).reshape(tuple(shape))
    )
    if not base <= start <= end <= len(data) or end - start != stored.num_values * kind.itemsize:
        raise ValueError(f"a tensor lies at bytes {start} to {end} of {len(data)}")
    return stored


def _leaves(tree: Any) -> Iterator[tuple[str, object]]:
    """Yield (dotted name, leaf) in file order; containers are visited once, so that cycles end."""
    waiting: list[tuple[str, Any]] = [("", tree)]
    seen: set[int] = set()
    while waiting:
        name, node = waiting.pop()
        children = _children(node)
        if children is None:
            yield name, node.stored if isinstance(node, NumpyArray) else node
        elif id(node) not in seen:
            seen.add(id(node))
            prefix = f"{name}." if name else ""
            waiting.extend((f"{prefix}{key}", child) for key, child in reversed(children))


def _children(node: Any) -> list[tuple[object, object]] | None:
    """Return the (key, child) pairs of a container; None for a leaf."""
    match node:
        case dict():
            return list(node.items())
        case list() | tuple() | set() | frozenset():
            return list(enumerate(node))
        case Inert():
            return list(enumerate(node.parts))
        case NumpyArray(stored=None):
            return [("", node.rest)]
    return None
