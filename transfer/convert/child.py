"""The reader of a pickle that nobody vouches for, in a process of its own.

It takes no more time and memory than its limits. It writes the bytes of all tensors to one file,
as safetensors, and to another, in JSON, their names, types and shapes, plain values, and the names
of objects that are not read.
"""

import gc
import json
import os
import pickle
import resource
import struct
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.storage import TypedStorage

from transfer.convert import inert
from transfer.convert.architectures import BackboneError
from transfer.convert.inert import Inert, needs_code
from transfer.convert.messages import escape, shorten

SPARE_BYTES = 2**29
"""Memory, and written bytes, beyond those that a file's own size allows."""
MOST_FILE_BYTES = 3 * 2**30
"""Bytes of a file that count for the limit of memory; a zip file is mapped."""
SPARE_S = 6
BYTES_PER_S = 100_000_000
"""Bytes of a file that allow a further second of processor time."""
MOST_FURTHER_S = 24
MAX_NAME = 400
"""Longest name of a tensor, in characters."""
MAX_PLAIN = 10_000
"""Plain values and rows of one container that get names; a log may hold millions."""
OWN_FORMATS = ("ssl-backbone", "ssl-encoder")
AGAIN = "fetch the file again and compare its size with the source"
TOO_MUCH = "reading it takes more memory than any checkpoint needs; it may be damaged or hostile"
TENSOR = "\0tensor"
"""Key that marks a tensor in an own file's tree."""

DAMAGED = (
    *(ValueError, TypeError, AttributeError, LookupError, AssertionError, ArithmeticError),
    *(RuntimeError, EOFError, struct.error, pickle.UnpicklingError, zipfile.BadZipFile),
)
"""Errors that reading a damaged or hostile file can raise."""


def answer(path: Path, numbers: BinaryIO, told: BinaryIO) -> None:
    """Read a file within the limits and end the process; a refusal stands in its place."""
    status = 1
    try:
        limit_resources(path.stat().st_size)
        os.environ.pop("TORCH_FORCE_WEIGHTS_ONLY_LOAD", None)  # the limits are safer than that
        torch.set_num_threads(1)
        torch.serialization.set_crc32_options(False)  # of what only the parent reads
        # cycles are not searched for: among millions of objects that takes half of the time
        gc.disable()
        with warnings.catch_warnings(action="ignore"):
            told.write(_answer(path, numbers).encode())
            told.flush()
        status = 0
    finally:
        os._exit(status)  # taking millions of objects apart would take seconds more


def limit_resources(file_bytes: int) -> None:
    """Bound memory, written bytes and time of this process, whatever the file asks."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    spare = SPARE_BYTES + 2 * min(file_bytes, MOST_FILE_BYTES)
    seconds = SPARE_S + min(file_bytes // BYTES_PER_S, MOST_FURTHER_S)
    for what, most in (
        (resource.RLIMIT_AS, now + file_bytes + spare),
        (resource.RLIMIT_FSIZE, file_bytes + spare),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        soft, hard = resource.getrlimit(what)
        bounds = [one for one in (most, soft, hard) if one != resource.RLIM_INFINITY]
        resource.setrlimit(what, (min(bounds), hard))
    os.setsid()  # Ctrl-C is the parent's to hear
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what Python itself says of a hostile file


def _answer(path: Path, numbers: BinaryIO) -> str:
    try:
        with path.open("rb") as file:
            told, tensors = describe(read_tree(file))
        views, storages = views_of(tensors)
        text = json.dumps(told | {"views": views})
    except BackboneError as error:
        return _refusal(str(error))
    except OSError as error:
        return _refusal(f"the file cannot be read ({error.strerror or error})")
    except (MemoryError, *DAMAGED) as error:
        reason = str(error)[:300]
        if isinstance(error, MemoryError) or "can't allocate memory" in reason:
            return _refusal(TOO_MUCH)
        return _refusal(f"it is cut off or damaged ({type(error).__name__}: {reason}); {AGAIN}")
    try:
        write_storages(storages, numbers)
        numbers.flush()
    except (MemoryError, OSError, RuntimeError) as error:
        return _refusal(
            f"no room in the folder for temporary files ({error}); free some there, or set TMPDIR"
        )
    return text


ALIGNED = 16
"""Bytes of which each storage takes a multiple; no type of number has more."""
View = tuple[int, str, Sequence[int], Sequence[int], int]
"""Place of the storage, type, shape, strides and offset of a tensor."""


def views_of(tensors: Iterable[Tensor]) -> tuple[list[View], list[Tensor]]:
    """Return what each tensor shows of which storage, and the storages as bytes (n,)."""
    places: dict[int, int] = {}
    storages: list[Tensor] = []
    views: list[View] = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage._cdata not in places:
            places[storage._cdata] = len(storages)
            storages.append(torch.empty(0, dtype=torch.uint8).set_(storage))
        place, name = places[storage._cdata], str(tensor.dtype).removeprefix("torch.")
        views.append((place, name, [*tensor.shape], tensor.stride(), int(tensor.storage_offset())))
    return views, storages


def write_storages(storages: Sequence[Tensor], file: BinaryIO) -> None:
    """Write bytes as safetensors, one after the other, so that none is copied before."""
    sizes = [-(-len(storage) // ALIGNED) * ALIGNED for storage in storages]
    ends = [*accumulate(sizes)]
    header = json.dumps(
        {
            str(place): {"dtype": "U8", "shape": [size], "data_offsets": [end - size, end]}
            for place, (size, end) in enumerate(zip(sizes, ends, strict=True))
        }
    )
    header += " " * (-(8 + len(header)) % ALIGNED)
    file.write(len(header).to_bytes(8, "little") + header.encode())
    for storage, size in zip(storages, sizes, strict=True):
        file.write(storage.numpy().data)
        file.write(bytes(size - len(storage)))


def _refusal(reason: str) -> str:
    return json.dumps({"refused": reason})


def read_tree(file: BinaryIO) -> Any:
    """Return what a file holds: nested containers with tensors, numbers, text and Inert."""
    start = file.read(16)
    file.seek(0)
    if start.startswith(b"PK"):
        check_zip(file)
        # by this name, since torch reads a path that ends in .safetensors otherwise
        return inert.load_torch(f"/dev/fd/{file.fileno()}", is_mapped=True)
    try:
        first = inert.load(file)
    except DAMAGED as error:
        if start.startswith(b"\x80") or isinstance(error, BackboneError):
            raise
        raise BackboneError(
            f"this is no checkpoint: the file starts with {start!r}; expected a torch file "
            f"(zip or legacy), a pickle or safetensors"
        ) from error
    if not isinstance(first, int) or first != inert.LEGACY_MAGIC:
        return first
    file.seek(0)
    if tarfile.is_tarfile(file):  # which torch would extract
        raise BackboneError("this is a tar archive; unpack it first")
    file.seek(0)
    return inert.load_torch(file)


def check_zip(file: BinaryIO) -> None:
    """Raise BackboneError for a zip file that torch.save did not write, or with other bytes."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        twice = [name for name, count in Counter(names).items() if count > 1]
        packed = [i.filename for i in archive.infolist() if i.compress_type or i.flag_bits & 1]
        roots = [name.removesuffix("/data.pkl") for name in names if name.endswith("/data.pkl")]
        if twice:
            raise BackboneError(f"two entries of the zip file are called {shorten(twice[0])}")
        if len(roots) != 1:
            raise BackboneError(
                f"this zip archive was not written by torch.save: expected one data.pkl, found "
                f"{shorten(names)}; unpack it, or save the arrays of NumPy's .npz by torch.save"
            )
        program = (f"{roots[0]}/code/", f"{roots[0]}/constants.pkl")
        if any(name.startswith(program) for name in names):
            raise BackboneError(
                f"this is a TorchScript program ({shorten(roots[0])}/code/), which needs code "
                f"execution; where you trust its source, load it and save model.state_dict()"
            )
        if packed:
            raise BackboneError(
                f"{shorten(packed[0])} is compressed or encrypted, which torch.save never does"
            )
        order = f"{roots[0]}/byteorder"
        if order in names and archive.read(order) != b"little":
            raise BackboneError(inert.BIG_ENDIAN)
        if damaged := archive.testzip():
            raise BackboneError(f"{shorten(damaged)} does not match its checksum; {AGAIN}")


def walk(tree: object) -> tuple[list[tuple[str, object]], dict[str, tuple[str, bool]]]:
    """Return what a file holds, which may be shared, cyclic or very deep, by dotted names.

    First the leaves, in file order; then the objects of unknown classes, the outermost only: the
    class, and whether tensors or their storages are inside, beside those that also stand elsewhere.
    Each container is visited once, so that cycles end, and those inside such objects last.
    """
    seen: set[int] = set()
    closed: list[tuple[str, Inert]] = []

    def leaves(tree: object, *, is_inside: bool = False) -> Iterator[tuple[str, object]]:
        """Yield the leaves; an object of an unknown class is closed, except inside of another."""
        waiting: list[tuple[str, Any]] = [("", tree)]
        while waiting:
            name, node = waiting.pop()
            if isinstance(node, Inert) and not node.is_known and not is_inside:
                closed.append((name, node))
                continue
            children = _children(node)
            if children is None:
                yield name, _as_tensor(node)
            elif id(node) not in seen:
                seen.add(id(node))
                waiting.extend((_join(name, key), child) for key, child in reversed(children))

    visible = list(leaves(tree))
    opaque: dict[str, tuple[str, bool]] = {}
    holders: dict[int, bool] = {}
    for name, outermost in closed:
        if id(outermost) not in holders:
            # all are walked through, since the next object must not claim what is inside this
            within = [leaf for _, leaf in leaves(outermost.parts, is_inside=True)]
            holders[id(outermost)] = any(isinstance(one, Tensor | TypedStorage) for one in within)
        opaque[name] = type(outermost).path, holders[id(outermost)]
    return visible, opaque


def _join(name: str, key: object) -> str:
    """Return the name of an entry, cut where it would grow without an end."""
    plain = str(key)[:MAX_NAME] if isinstance(key, str) else shorten(key)
    word = plain if plain.isascii() else escape(plain)
    return f"{name}.{word}"[:MAX_NAME] if name else word[:MAX_NAME]


def _children(node: Any) -> list[tuple[object, object]] | None:
    """Return the (key, child) pairs of a container; None for a leaf."""
    match node:
        case dict():
            return _without_masses(node.items())
        case list() | tuple() | set() | frozenset():
            return _without_masses(enumerate(node))
        case Inert():
            return list(enumerate(node.parts))
        case np.ndarray() if node.dtype == object:
            return list(enumerate(node.ravel().tolist()))
    return None


def _as_tensor(node: object) -> object:
    """Return an array of plain numbers as a tensor, everything else as it is."""
    if isinstance(node, np.ndarray) and node.dtype.kind in "fiub":
        kind = node.dtype.newbyteorder("=")
        if kind.itemsize <= 8 and kind.str[1:] not in ("u2", "u4", "u8"):  # hold no weights
            return torch.from_numpy(np.array(node, kind, order="C"))
    return node


def _without_masses(pairs: Iterable[tuple[object, object]]) -> list[tuple[object, object]]:
    """Return the first MAX_PLAIN pairs, and of the others those of tensors, dicts and objects."""
    kept = list(pairs)
    return kept[:MAX_PLAIN] + [
        pair for pair in kept[MAX_PLAIN:] if isinstance(pair[1], Tensor | np.ndarray | dict | Inert)
    ]


def describe(tree: object) -> tuple[dict[str, Any], list[Tensor]]:
    """Return what a file holds, in values that JSON knows, and its tensors, named by their place.

    BackboneError for names that do not tell.
    """
    visible, opaque = walk(tree)
    tensors: list[Tensor] = []

    def place(tensor: Tensor) -> int:
        tensors.append(tensor.detach())
        return len(tensors) - 1

    def mark(node: object) -> dict[str, int] | str:
        """Return what stands for a tensor, or for an object that JSON does not know."""
        return {TENSOR: place(node)} if isinstance(node, Tensor) else type(node).__name__

    named: dict[str, int] = {}
    for name, leaf in visible:
        if isinstance(leaf, Tensor):
            if len(name) >= MAX_NAME:
                raise BackboneError(f"the name of a tensor is too long: {shorten(name)}")
            if name in named:
                raise BackboneError(
                    f"two tensors are called {shorten(name)}; expected distinct names"
                )
            named[name] = place(leaf)
    for name, (path, holds_numbers) in opaque.items():
        if holds_numbers and not named:
            raise BackboneError(needs_code(path))
        if name in named:
            raise BackboneError(
                f"a tensor and an object of {shorten(path)} are both called {shorten(name)}"
            )
    form = tree.get("format") if isinstance(tree, dict) else None
    own = tree if isinstance(form, str) and form.startswith(OWN_FORMATS) else None
    told = {
        "tensors": named,
        "values": {n: leaf for n, leaf in visible if isinstance(leaf, str | int | float)},
        "opaque": opaque,
        "tree": json.dumps(own, default=mark),
    }
    return told, tensors
