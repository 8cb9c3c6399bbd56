"""Read a checkpoint of any format, without executing any of its code."""

import json
import pickle
import struct
import tarfile
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transfer.encoders import safe_unpickler
from transfer.encoders.architectures import BackboneError
from transfer.encoders.file_types import file_type
from transfer.encoders.naming import brief
from transfer.encoders.safe_unpickler import Inert

DOWNLOAD_AGAIN = "download the file again and compare its size with the source"
MAX_VALUES = 10_000
"""Maximum number of plain values per container; a log may have millions."""
DAMAGE_ERRORS = (
    *(ValueError, TypeError, AttributeError, LookupError, AssertionError, ArithmeticError),
    *(RuntimeError, EOFError, MemoryError, struct.error, pickle.UnpicklingError),
    *(zipfile.BadZipFile, SafetensorError),
)
"""Errors that reading a damaged file can raise."""


@dataclass(frozen=True)
class Contents:
    """Contents of a file. Names are keys, joined by dots."""

    tensors: dict[str, Tensor]
    """All tensors, memory-mapped if the format allows it."""
    values: dict[str, str | int | float]
    """Plain values, for example {"epoch": 200, "args.arch": "resnet50"}."""
    opaque: dict[str, str]
    """Objects with tensors that only their own code can read -> class."""
    own_fields: dict[str, Any] | None = None
    """Fields of a file in our format."""


def read_file(path: Path) -> Contents:
    """Return the contents of a checkpoint; raises BackboneError for any other file."""
    kind = file_type(path)
    try:
        if kind == "safetensors":
            return _of_safetensors(path)
        with path.open("rb") as file:
            if kind == "zip":
                _check_zip(path)
                # torch treats a path that ends in .safetensors differently
                return contents_of(safe_unpickler.load_torch(f"/dev/fd/{file.fileno()}", mmap=True))
            if kind == "pickle":
                return contents_of(safe_unpickler.load(file))
            if tarfile.is_tarfile(path):  # torch would extract it
                raise BackboneError("this is a tar archive; unpack it first")
            return contents_of(safe_unpickler.load_torch(file))
    except OSError as error:
        raise BackboneError(f"the file cannot be read ({error.strerror or error})") from error
    except DAMAGE_ERRORS as error:
        if isinstance(error, BackboneError):
            raise
        subject = "the safetensors file" if kind == "safetensors" else "it"
        reason = f"{type(error).__name__}: {str(error)[:300]}"
        raise BackboneError(
            f"{subject} is truncated or damaged ({reason}); {DOWNLOAD_AGAIN}"
        ) from error


def _of_safetensors(path: Path) -> Contents:
    with safe_open(path, "pt") as file:
        fields: dict[str, Any] = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if not _is_our_format(fields):
        return Contents(tensors, {}, {})
    # metadata can contain only text, so our structured fields are stored as JSON
    fields |= {name: json.loads(fields[name]) for name in ("input", "made_by")}
    return contents_of({**fields, "state_dict": tensors})


def _check_zip(path: Path) -> None:
    """Raise BackboneError unless torch.save wrote the zip archive, undamaged."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        roots = [name.removesuffix("/data.pkl") for name in names if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise BackboneError(
                f"this zip archive was not written by torch.save, it contains {brief(names)}. "
                f"Unpack it, or save the arrays of NumPy's .npz with torch.save"
            )
        program = (f"{roots[0]}/code/", f"{roots[0]}/constants.pkl")
        if any(name.startswith(program) for name in names):
            raise BackboneError(
                "this is TorchScript, which needs code execution: save model.state_dict()"
            )
        if any(entry.compress_type or entry.flag_bits & 1 for entry in archive.infolist()):
            raise BackboneError("it is compressed or encrypted, which torch.save never does")
        order = f"{roots[0]}/byteorder"
        if order in names and archive.read(order) != b"little":
            raise BackboneError(safe_unpickler.BIG_ENDIAN)
        if damaged := archive.testzip():  # torch does not compare checksums
            raise BackboneError(f"{damaged[:99]} does not match its checksum; {DOWNLOAD_AGAIN}")


def contents_of(tree: Any) -> Contents:
    """Return the contents of nested containers.

    Containers may be shared, cyclic or very deep. Items are read from objects of any class, and
    attributes if they are plain values. Tensors among the attributes are not read, since only the
    class can interpret them.
    """
    contents = Contents({}, {}, {}, tree if _is_our_format(tree) else None)
    visited: dict[int, Any] = {}  # keeps each container alive, so that its id is not reused
    # name and value of an entry; an attribute also has the name and class of its object
    queue: deque[tuple[str, Any, tuple[str, str] | None]] = deque([("", tree, None)])
    while queue:
        name, value, owner = queue.popleft()
        value = _as_tensor(value)
        if safe_unpickler.holds_numbers(value):
            if owner or not isinstance(value, Tensor) or value.layout != torch.strided:
                path = getattr(value, "path", type(value).__name__)
                contents.opaque.setdefault(*(owner or (name, path)))
            elif name in contents.tensors:
                raise BackboneError(f"two tensors are called {brief([name])}")
            else:
                contents.tensors[name] = value.detach()
        elif isinstance(value, str | int | float):
            contents.values[name] = value
        elif id(value) not in visited:
            visited[id(value)] = value
            children = [(n, child, owner) for n, child in _children(name, _items(value))]
            queue.extendleft(reversed(children))
            if isinstance(value, Inert):
                owner = owner or (name, value.path)
                if any(isinstance(a, dict) and "_parameters" in a for a in value.attributes):
                    contents.opaque.setdefault(*owner)  # a module's attributes are not settings
                else:  # last, since a container may be shared with items and is visited once
                    attributes = _children(name, enumerate(value.attributes))
                    queue.extend((n, child, owner) for n, child in attributes)
    if duplicates := contents.tensors.keys() & contents.opaque.keys():
        raise BackboneError(f"a tensor and another object are both called {brief(duplicates)}")
    return contents


def _as_tensor(value: Any) -> Any:
    """Return a numeric array as a tensor.

    An object array is returned as a list, any other value unchanged.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind in "fiub" and value.dtype.itemsize <= 8:
        # a copy, in the byte order of this machine
        return torch.from_numpy(np.array(value, value.dtype.newbyteorder("="), order="C"))
    return value.ravel().tolist() if value.dtype == object else value


def _is_our_format(tree: Any) -> bool:
    layout = tree.get("format") if isinstance(tree, dict) else None
    return isinstance(layout, str) and layout.startswith(("ssl-backbone", "ssl-encoder"))


def _items(value: Any) -> Iterable[tuple[object, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, Inert):
        return value.items
    return enumerate(value) if isinstance(value, list | tuple | set | frozenset) else ()


def _children(parent: str, items: Iterable[tuple[object, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each item, with at most MAX_VALUES plain values."""
    for position, (key, value) in enumerate(items):
        if position < MAX_VALUES or not isinstance(value, str | int | float):
            key_text = str(key) if isinstance(key, str | int) else type(key).__name__
            yield f"{parent}.{key_text}" if parent else key_text, value
