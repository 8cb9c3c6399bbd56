"""Open a checkpoint of any format and list its contents, without executing any of it.

The first bytes decide the format, never the file name.
"""

import json
import pickle
import re
import struct
import tarfile
import zipfile
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pretrain.running.reading import retry_reads
from transfer.encoders import inert
from transfer.encoders.architectures import BackboneError
from transfer.encoders.inert import Inert
from transfer.encoders.naming import NAMES, brief, escape

AGAIN = "fetch the file again and compare its size with the source"
MAX_VALUES = 10_000
"""Plain values of one container that are read; a log may hold millions."""
FOLDER = (
    "a folder; expected a checkpoint file. dcp_to_torch_save converts a folder of "
    "torch.distributed.checkpoint, and DeepSpeed's zero_to_fp32.py one of DeepSpeed. For "
    "transformers, pass its model.safetensors, with --encoder hf:FOLDER"
)
DAMAGED = (
    *(ValueError, TypeError, AttributeError, LookupError, AssertionError, ArithmeticError),
    *(RuntimeError, EOFError, MemoryError, struct.error, pickle.UnpicklingError),
    *(zipfile.BadZipFile, SafetensorError),
)
"""Errors that reading a damaged file can raise."""


@dataclass(frozen=True)
class Contents:
    """The contents of a file. Names are the keys that lead to an object, joined by dots."""

    tensors: dict[str, Tensor]
    """Every tensor, memory-mapped where the format allows it."""
    values: dict[str, str | int | float]
    """Plain values, for example {"epoch": 200, "args.arch": "resnet50"}."""
    opaque: dict[str, str]
    """Objects with tensors inside that only foreign code could read: name -> class or function."""
    own: dict[str, Any] | None = None
    """Fields of a file in our format."""


def read_file(path: Path) -> Contents:
    """Return the contents of a file; BackboneError if it is not a readable checkpoint."""
    try:
        if path.is_dir():
            raise BackboneError(FOLDER)
        if not path.is_file():
            raise BackboneError("no such file; expected a checkpoint file")
        # a failing disk would kill a process that has the file mapped
        retry_reads(path, lambda: _read_through(path))
        with path.open("rb") as file:
            start = file.read(4096)
        return _contents(path, start)
    except OSError as error:
        raise BackboneError(f"the file cannot be read ({error.strerror or error})") from error
    except DAMAGED as error:
        if isinstance(error, BackboneError):
            raise
        kind = "the safetensors file" if isinstance(error, SafetensorError) else "it"
        reason = f"{type(error).__name__}: {str(error)[:300]}"
        raise BackboneError(f"{kind} is truncated or damaged ({reason}); {AGAIN}") from error


def _read_through(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(2**22)
        while file.readinto(buffer):
            pass


def _contents(path: Path, start: bytes) -> Contents:
    if not start:
        raise BackboneError("the file is empty; fetch it again")
    header_bytes = int.from_bytes(start[:8], "little")
    is_pickle = start.startswith((b"\x80", b"PK"))
    # the length of a header may start with any byte
    if start[8:9] == b"{" and (not is_pickle or header_bytes < path.stat().st_size):
        return _of_safetensors(path)
    for row in NAMES["formats"]:
        if re.match(row["start"], start.decode("latin1")):
            raise BackboneError(f"this is {row['is']}")
    if not is_pickle and start[:1] not in b"(}]c":
        raise BackboneError(
            f"this is not a checkpoint: the file starts with {start[:16]!r}; expected a torch file "
            f"(zip or legacy), a pickle or safetensors"
        )
    with path.open("rb") as file:
        if start.startswith(b"PK"):
            _check_zip(path)
            # by this name, since torch treats a path that ends in .safetensors differently
            return contents_of(inert.load_torch(f"/dev/fd/{file.fileno()}", mmap=True))
        if not inert.is_legacy(start):
            return contents_of(inert.load(file))
        if tarfile.is_tarfile(path):  # torch would extract it
            raise BackboneError("this is a tar archive; unpack it first")
        return contents_of(inert.load_torch(file))


def _of_safetensors(path: Path) -> Contents:
    with safe_open(path, "pt") as file:
        fields: dict[str, Any] = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if not _is_own(fields):
        return Contents({escape(name): tensor for name, tensor in tensors.items()}, {}, {})
    # metadata can only hold text, so structured fields of ours are stored as JSON
    fields |= {name: json.loads(fields[name]) for name in ("input", "made_by")}
    return contents_of({**fields, "state_dict": tensors})


def _check_zip(path: Path) -> None:
    """Raise BackboneError for a zip archive that torch.save did not write, or a damaged one."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise BackboneError(f"two entries of the zip file are called {brief(repeated)}")
        roots = [name.removesuffix("/data.pkl") for name in names if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise BackboneError(
                f"this zip archive was not written by torch.save: expected one data.pkl, found "
                f"{brief(names)}. Unpack it, or save the arrays of NumPy's .npz with "
                f"torch.save"
            )
        if any(
            name.startswith((f"{roots[0]}/code/", f"{roots[0]}/constants.pkl")) for name in names
        ):
            raise BackboneError(
                "this is a TorchScript program, which needs code execution. If you trust its "
                "source, load it and save model.state_dict()"
            )
        if any(entry.compress_type or entry.flag_bits & 1 for entry in archive.infolist()):
            raise BackboneError("it is compressed or encrypted, which torch.save never does")
        order = f"{roots[0]}/byteorder"
        if order in names and archive.read(order) != b"little":
            raise BackboneError(inert.BIG_ENDIAN)
        if damaged := archive.testzip():  # torch does not compare checksums
            raise BackboneError(f"{damaged[:99]} does not match its checksum; {AGAIN}")


def contents_of(tree: Any) -> Contents:
    """Return the contents of nested containers, which may be shared, cyclic or very deep.

    Items are read from objects of any class, and attributes if they are plain values. Tensors among
    the attributes are not read, since only the class knows what they mean.
    """
    contents = Contents({}, {}, {}, tree if _is_own(tree) else None)
    visited: dict[int, Any] = {}  # keeps each node alive, so that its id stays its own
    # attributes come last, since containers may be shared with items and are visited once
    waiting: deque[tuple[str, Any, tuple[str, str] | None]] = deque([("", tree, None)])
    while waiting:
        name, node, owner = waiting.popleft()  # owner: name and class of the object around it
        if isinstance(node, np.ndarray) and node.dtype.kind in "fiub" and node.dtype.itemsize <= 8:
            # a copy, in the byte order of this machine
            node = torch.from_numpy(np.array(node, node.dtype.newbyteorder("="), order="C"))
        if isinstance(node, np.ndarray) and node.dtype == object:
            node = node.ravel().tolist()
        if inert.holds_numbers(node):
            if owner or not isinstance(node, Tensor) or node.layout != torch.strided:
                path = getattr(node, "path", type(node).__name__)
                contents.opaque.setdefault(*(owner or (name, path)))
            elif name in contents.tensors:
                raise BackboneError(
                    f"two tensors are called {brief([name])}; expected distinct names"
                )
            else:
                contents.tensors[name] = node.detach()
        elif isinstance(node, int) and node.bit_length() > 64:
            continue  # it describes nothing, and Python cannot print all of them
        elif isinstance(node, str | int | float):
            contents.values[name] = node
        elif id(node) not in visited:
            visited[id(node)] = node
            waiting.extendleft(reversed(_children(name, _items(node), owner)))
            if isinstance(node, Inert):
                owner = owner or (name, node.path)
                if any(isinstance(part, dict) and "_parameters" in part for part in node.parts):
                    contents.opaque.setdefault(*owner)  # the settings of a module say nothing
                else:
                    waiting.extend(_children(name, enumerate(node.parts), owner))
    if both := contents.tensors.keys() & contents.opaque.keys():
        raise BackboneError(f"a tensor and another object are both called {brief(both)}")
    return contents


def _is_own(tree: Any) -> bool:
    layout = tree.get("format") if isinstance(tree, dict) else None
    return isinstance(layout, str) and layout.startswith(("ssl-backbone", "ssl-encoder"))


def _items(node: Any) -> Iterable[tuple[object, Any]]:
    if isinstance(node, dict):
        return node.items()
    if isinstance(node, Inert):
        return node.items
    return enumerate(node) if isinstance(node, list | tuple | set | frozenset) else ()


def _children(
    name: str, items: Iterable[tuple[object, Any]], owner: tuple[str, str] | None
) -> list[tuple[str, Any, tuple[str, str] | None]]:
    """Return the names of items, without plain values beyond the first MAX_VALUES."""
    children = []
    for position, (key, child) in enumerate(items):
        if position < MAX_VALUES or not isinstance(child, str | int | float):
            word = escape(str(key) if isinstance(key, str | int) else type(key).__name__)
            children.append((f"{name}.{word}" if name else word, child, owner))
    return children
