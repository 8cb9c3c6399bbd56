"""The reader of a pickle that nobody vouches for, in a process of its own.

It takes no more time and memory than its limits. It writes the numbers of every tensor to one file,
and to another, in JSON, where they lie, plain values, and the names of objects that are not read.
"""

import gc
import json
import os
import pickle
import resource
import signal
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.storage import TypedStorage

from transfer.convert import inert
from transfer.convert.architectures import BackboneError
from transfer.convert.inert import Inert, OfSubclass, needs_code
from transfer.convert.messages import escape, shorten

SPARE_BYTES = 2**29
"""Memory beyond twice the file, and bytes by which a tensor that repeats numbers may exceed it."""
MOST_FILE_BYTES = 3 * 2**30
"""Bytes of a file that count for the limit of memory; a zip file is mapped."""
SPARE_S = 6
BYTES_PER_S = 100_000_000
"""Bytes of a file that allow a further second of processor time."""
MOST_FURTHER_S = 24
PATIENCE_S = 600
"""Most seconds by the clock."""
MAX_NAME = 400
"""Longest name of a tensor, in characters."""
MAX_PLAIN = 10_000
"""Plain values and short rows of them, of one container, that get names.

A log or a list of images may hold millions, which nobody reads.
"""
SHORT_ROW = 16
MAX_NODES = 2_000_000
"""Most containers that are walked through."""
PLAIN = frozenset({str, bytes, int, bool, float, complex, NoneType})
OWN_FORMATS = ("ssl-backbone", "ssl-encoder")
FETCH_AGAIN = "fetch the file again and compare its size with the source"
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
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 2**33
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
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE_S)


def _answer(path: Path, numbers: BinaryIO) -> str:
    try:
        with path.open("rb") as file:
            return json.dumps(Answer(path.stat().st_size, numbers).of(read_tree(file)))
    except BackboneError as error:
        refusal = str(error)
    except OSError as error:
        refusal = f"the file cannot be read ({error.strerror or error})"
    except (MemoryError, *DAMAGED) as error:
        reason = str(error)[:300]
        refusal = f"it is cut off or damaged ({type(error).__name__}: {reason}); {FETCH_AGAIN}"
        if isinstance(error, MemoryError) or "can't allocate memory" in reason:
            refusal = TOO_MUCH
    return json.dumps({"refused": refusal})


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
        if len(set(names)) < len(names):
            name = next(name for place, name in enumerate(names) if name in names[:place])
            raise BackboneError(f"two entries of the zip file are called {shorten(name)}")
        root = _root(names)
        for info in archive.infolist():
            if info.compress_type or info.flag_bits & 1:
                raise BackboneError(
                    f"{shorten(info.filename)} is compressed or encrypted, which torch.save never "
                    f"does"
                )
        if f"{root}/byteorder" in names and archive.read(f"{root}/byteorder") != b"little":
            raise BackboneError(inert.BIG_ENDIAN)
        if damaged := archive.testzip():
            raise BackboneError(f"{shorten(damaged)} does not match its checksum; {FETCH_AGAIN}")


def _root(names: list[str]) -> str:
    """Return the top folder of a torch archive."""
    roots = [name.removesuffix("/data.pkl") for name in names if name.endswith("/data.pkl")]
    inside = [name for name in names if name.endswith((".pth", ".pt", ".bin", ".ckpt", ".zip"))]
    if len(roots) != 1 and names and all(name.endswith(".npy") for name in names):
        raise BackboneError(
            "this is NumPy's .npz: load it where it was made, and save its arrays as tensors by "
            "torch.save"
        )
    if not roots and inside:
        raise BackboneError(f"this is a zip archive around {shorten(inside)}: unpack it first")
    if len(roots) != 1:
        raise BackboneError(
            f"this zip archive was not written by torch.save: expected one data.pkl, "
            f"found {shorten(names)}"
        )
    program = (f"{roots[0]}/code/", f"{roots[0]}/constants.pkl")
    if any(name.startswith(program) for name in names):
        raise BackboneError(
            f"this is a TorchScript program ({shorten(roots[0])}/code/), which needs code "
            f"execution to load; where you trust its source, load it there and save only "
            f"model.state_dict()"
        )
    return roots[0]


class Walk:
    """A walk through what a file holds, which may be shared, cyclic or very deep.

    Each container is visited once, so that cycles end, and those inside objects of unknown classes
    last.
    """

    def __init__(self, tree: object) -> None:
        self.seen: set[int] = set()
        self.closed: list[tuple[str, Inert]] = []
        self.known: dict[str, None] = {}
        """Classes of configuration and logs, of which the entries are leaves."""
        self.visible = list(self._leaves(tree))
        """Leaves by dotted name, in file order."""
        self.opaque: dict[str, tuple[str, bool]] = {}
        """Objects of unknown classes by dotted name, the outermost only: path, and whether tensors
        or their storages are inside, beside those that also stand elsewhere."""
        holders: dict[int, bool] = {}
        for name, outermost in self.closed:
            if id(outermost) not in holders:
                # all are walked through, since the next object must not claim what is inside this
                within = [leaf for _, leaf in self._leaves(outermost.parts, is_inside=True)]
                holders[id(outermost)] = any(isinstance(leaf, NUMBERS) for leaf in within)
            self.opaque[name] = type(outermost).path, holders[id(outermost)]

    def _leaves(self, tree: object, *, is_inside: bool = False) -> Iterator[tuple[str, object]]:
        """Yield the leaves; an object of an unknown class is closed, except inside of another."""
        waiting: list[tuple[str, Any]] = [("", tree)]
        while waiting:
            name, node = waiting.pop()
            if isinstance(node, Inert) and not is_inside:
                if not node.is_known:
                    self.closed.append((name, node))
                    continue
                if not node.is_plain and "." in node.path:
                    self.known[node.path] = None
            children = _children(node)
            if children is None:
                yield name, _as_tensor(node)
            elif id(node) not in self.seen:
                self.seen.add(id(node))
                if len(self.seen) > MAX_NODES:
                    raise BackboneError(
                        f"the file holds more than {MAX_NODES:,} containers, which no checkpoint "
                        "needs; it may be damaged or hostile"
                    )
                waiting.extend((_join(name, key), child) for key, child in reversed(children))


NUMBERS = (Tensor, OfSubclass, TypedStorage)


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
    """Return the pairs, of plain ones only the first MAX_PLAIN: each costs names of its own."""
    kept = list(pairs)
    if len(kept) <= MAX_PLAIN:
        return kept
    return kept[:MAX_PLAIN] + [pair for pair in kept[MAX_PLAIN:] if not _is_plain(pair[1])]


def _is_plain(value: object) -> bool:
    """Return whether a value is plain or a short row of plain values."""
    if isinstance(value, tuple | list):
        return len(value) <= SHORT_ROW and PLAIN.issuperset(map(type, value))
    return type(value) in PLAIN


class Answer:
    """The reply to the parent, in values that JSON knows."""

    def __init__(self, file_bytes: int, numbers: BinaryIO) -> None:
        self.file_bytes, self.numbers = file_bytes, numbers
        self.written: dict[tuple[object, ...], int] = {}
        """Place of each tensor's numbers."""

    def of(self, tree: object) -> dict[str, Any]:
        """Return the answer on what a file holds; BackboneError for names that do not tell."""
        walk = Walk(tree)
        tensors: dict[str, list[Any]] = {}
        for name, leaf in walk.visible:
            if not isinstance(leaf, Tensor | OfSubclass):
                continue
            if len(name) >= MAX_NAME:
                raise BackboneError(f"the name of a tensor is too long: {shorten(name)}")
            if name in tensors:
                raise BackboneError(
                    f"two tensors are called {shorten(name)}; expected distinct names"
                )
            tensors[name] = self.tensor(leaf)
        for name, (path, holds_numbers) in walk.opaque.items():
            if holds_numbers and not tensors:
                raise BackboneError(needs_code(path))
            if name in tensors:
                raise BackboneError(
                    f"a tensor and an object of {shorten(path)} are both called "
                    f"{shorten(name)}; expected distinct names"
                )
        form = tree.get("format") if isinstance(tree, dict) else None
        own = tree if isinstance(form, str) and form.startswith(OWN_FORMATS) else None
        return {
            "tensors": tensors,
            "values": {n: leaf for n, leaf in walk.visible if isinstance(leaf, str | int | float)},
            "opaque": walk.opaque,
            "configurations": list(walk.known),
            "tree": json.dumps(own, default=self.mark),
        }

    def tensor(self, leaf: Tensor | OfSubclass) -> list[Any]:
        """Return place, type, shape and class of a tensor whose numbers are written once.

        The place is -1 for a tensor that repeats numbers more often than anybody needs.
        """
        kind = leaf.kind if isinstance(leaf, OfSubclass) else ""
        tensor = leaf.tensor if isinstance(leaf, OfSubclass) else leaf
        fields = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
        identity = tensor.data_ptr(), tensor.stride(), *map(str, fields)
        if tensor.numel() * tensor.itemsize > self.file_bytes + SPARE_BYTES:
            return [-1, *fields, kind]
        if identity not in self.written:
            self.written[identity] = self.numbers.tell()
            flat = tensor.flatten().clone(memory_format=torch.contiguous_format)
            values = flat.view(torch.uint8).numpy()
            try:
                self.numbers.write(values.data)
                self.numbers.write(bytes(-len(values) % 16))
                self.numbers.flush()
            except OSError as error:
                raise BackboneError(
                    f"its numbers find no room in the folder for temporary files "
                    f"({error.strerror}); free some space there, or set TMPDIR"
                ) from error
        return [self.written[identity], *fields, kind]

    def mark(self, node: object) -> dict[str, Any] | str:
        """Return what stands for a tensor, or for an object that JSON does not know."""
        if isinstance(node, Tensor | OfSubclass):
            return {TENSOR: self.tensor(node)}
        return type(node).__name__
