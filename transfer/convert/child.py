"""What reads a pickle that nobody vouches for: python -m transfer.convert.child FILE FD.

It takes no more time and memory than its limits, and answers on stdout in JSON: where the tensors
lie in the file, plain values, and the names of objects that are not read. Numbers that lie inside
a pickle are written to the descriptor FD, and the answer tells where. Only NumPy is imported, so
that there is little to misuse and a start takes a fifth of a second.
"""

import gc
import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO

import numpy as np

from transfer.convert.inert import load_pickle
from transfer.convert.messages import escape, shorten
from transfer.convert.stand_ins import NUMPY_TYPES, Inert, RefusedError, Storage, Tensor
from transfer.convert.torch_file import LEGACY_MAGIC, read_legacy, read_nested, read_zip

SPARE_BYTES = 2**29
"""Memory beyond twice the file."""
MOST_FILE_BYTES = 3 * 2**30
"""Bytes of a file that count for the limit of memory; numbers of tensors are not read here."""
SPARE_S = 6
BYTES_PER_S = 100_000_000
"""Bytes of a file that allow a further second of processor time."""
MOST_FURTHER_S = 24
MAX_NAME = 400
"""Longest name of a tensor, in characters."""
MAX_PLAIN = 10_000
"""Plain values and short rows of them, of one container, that get names.

A log or a list of images may hold millions, which nobody reads.
"""
SHORT_ROW = 16
MAX_NODES = 2_000_000
"""Most containers that are walked through, and entries of an own file's tree."""
MAX_DEPTH = 500
"""Deepest nesting of an own file's tree."""
MAX_TEXT = 2**26
"""Most characters of one value."""
MAX_NUMBER_BITS = 8192
PLAIN = frozenset({str, bytes, int, bool, float, complex, NoneType})
OWN_FORMATS = ("ssl-backbone", "ssl-encoder")

Leaf = tuple[str, object]
TENSOR, OBJECT = "\0tensor", "\0object"
"""Keys that mark tensors and other objects in an own file's tree."""


def limit_resources(file_bytes: int) -> None:
    """Bound memory, written bytes and processor time of this process, whatever the file asks."""
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 2**30
    spare = SPARE_BYTES + 2 * min(file_bytes, MOST_FILE_BYTES)
    seconds = SPARE_S + min(file_bytes // BYTES_PER_S, MOST_FURTHER_S)
    for what, most in (
        (resource.RLIMIT_AS, now + file_bytes + spare),  # the file is mapped
        (resource.RLIMIT_FSIZE, spare),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        soft, hard = resource.getrlimit(what)
        bounds = [one for one in (most, soft, hard) if one != resource.RLIM_INFINITY]
        resource.setrlimit(what, (min(bounds), hard))


def read_tree(file: BinaryIO, data: memoryview) -> Any:
    """Return what a file holds: nested containers with Tensor, numbers, text and Inert."""
    start = bytes(data[:16])
    if start.startswith(b"PK"):
        return read_zip(file, data)
    try:
        first = load_pickle(file, nested=read_nested)
    except RefusedError as error:
        if start.startswith(b"\x80") or "code execution" in str(error):
            raise
        raise RefusedError(
            f"this is no checkpoint: the file starts with {start!r}; expected a torch file "
            f"(zip or legacy), a pickle or safetensors"
        ) from error
    if isinstance(first, int) and first == LEGACY_MAGIC:
        return read_legacy(file, data)
    return first


class Walk:
    """A walk through what a file holds, which may be shared, cyclic or very deep.

    Each container is visited once, so that cycles end, and those inside objects of unknown classes
    last.
    """

    def __init__(self, tree: object) -> None:
        self.seen: set[int] = set()
        closed: list[tuple[str, Inert]] = []
        self.known: dict[str, None] = {}
        """Classes of configuration and logs, of which the entries are leaves."""
        self.visible = list(self._leaves("", tree, closed))
        """Leaves by dotted name, in file order."""
        self.opaque: dict[str, tuple[str, bool]] = {}
        """Objects of unknown classes by dotted name, the outermost only: path, and whether tensors
        or their storages are inside, beside those that also stand elsewhere."""
        holders: dict[int, bool] = {}
        for name, outermost in closed:
            if id(outermost) not in holders:
                # objects within an object belong to it; all are walked through, since the next
                # object must not claim what is inside this one
                within = [leaf for _, leaf in self._leaves("", outermost.parts, None)]
                numbers = [isinstance(leaf, Tensor | Storage) for leaf in within]
                holders[id(outermost)] = any(numbers)
            self.opaque[name] = type(outermost).path, holders[id(outermost)]

    def _leaves(
        self, name: str, tree: object, closed: list[tuple[str, Inert]] | None
    ) -> Iterator[Leaf]:
        """Yield the leaves; objects of unknown classes are put into `closed`, or walked through."""
        waiting: list[tuple[str, Any]] = [(name, tree)]
        while waiting:
            name, node = waiting.pop()
            if isinstance(node, Inert) and closed is not None:
                if not node.is_known:
                    closed.append((name, node))
                    continue
                if not node.is_plain and "." in node.path:
                    self.known[node.path] = None
            children = _children(node)
            if children is None:
                yield name, _as_tensor(node)
            elif id(node) not in self.seen:
                self.seen.add(id(node))
                if len(self.seen) > MAX_NODES:
                    raise RefusedError(
                        f"the file holds more than {MAX_NODES:,} containers, which no checkpoint "
                        "needs; it may be damaged or hostile"
                    )
                waiting.extend((_join(name, key), child) for key, child in reversed(children))


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
    if isinstance(node, np.ndarray):
        kind = node.dtype.newbyteorder("<")
        names = [name for name, known in NUMPY_TYPES.items() if np.dtype(known) == kind]
        if names and kind.kind in "fiub" and kind.str != "<u2":
            return Tensor(node.astype(kind, copy=False), names[0])
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
    """What the parent is told, in values that JSON knows."""

    def __init__(self, data: memoryview, numbers: BinaryIO) -> None:
        self.numbers = numbers
        self.start = _address(np.frombuffer(data, np.uint8)) if len(data) else 0
        self.num_bytes = len(data)
        self.written: dict[tuple[object, ...], int] = {}
        """Place of each array of a pickle among the numbers."""

    def of(self, tree: object) -> dict[str, Any]:
        """Return the answer on what a file holds."""
        walk = Walk(tree)
        tensors, values = [], []
        for name, leaf in walk.visible:
            if isinstance(leaf, Tensor):
                tensors.append((name, self.tensor(leaf)))
            elif isinstance(leaf, str | int | float):
                values.append((name, _value(leaf)))
        own = isinstance(tree, dict) and _is_own(tree.get("format"))
        self.num_nodes = 0
        return {
            "tensors": tensors,
            "values": values,
            "opaque": [(name, *about) for name, about in walk.opaque.items()],
            "configurations": list(walk.known),
            "tree": self.node(tree, 0) if own else None,
        }

    def tensor(self, tensor: Tensor) -> list[Any]:
        """Return place, shape, strides (in bytes), type and class of a tensor.

        The place is (whether the numbers are those of a pickle, first byte).
        """
        array = tensor.array
        place = _address(array) - self.start
        is_written = array.size == 0 or not 0 <= place < self.num_bytes
        if is_written:
            place, array = self._write(array)
        return [is_written, place, array.shape, array.strides, tensor.dtype, tensor.kind]

    def _write(self, array: np.ndarray) -> tuple[int, np.ndarray]:
        """Write the numbers of an array, once; return their place and the array in that order."""
        identity = _address(array), array.shape, array.strides, array.dtype.str
        whole = np.ascontiguousarray(array).reshape(array.shape)
        if identity not in self.written:
            self.written[identity] = self.numbers.tell()
            try:
                self.numbers.write(whole.tobytes())
                self.numbers.flush()
            except OSError as error:
                raise RefusedError(
                    f"the numbers inside its pickle find no room in the folder for temporary files "
                    f"({error.strerror}); free some space there, or set TMPDIR"
                ) from error
        return self.written[identity], whole

    def node(self, node: object, depth: int) -> Any:
        """Return a part of an own file's tree; tensors and objects are marked."""
        self.num_nodes += 1
        if depth > MAX_DEPTH or self.num_nodes > MAX_NODES:
            raise RefusedError(
                f"the containers in the file are nested deeper than {MAX_DEPTH}, or so many times "
                "inside each other that they cannot be printed; the file may be hostile"
            )
        match node:
            case dict():
                return {
                    str(key)[:MAX_TEXT] if isinstance(key, str) else shorten(key): self.node(
                        value, depth + 1
                    )
                    for key, value in node.items()
                }
            case list() | tuple() | set() | frozenset():
                return [self.node(value, depth + 1) for value in node]
            case Tensor():
                return {TENSOR: self.tensor(node)}
            case bool() | int() | float() | str() | None:
                return _value(node) if node is not None else None
        return {OBJECT: type(node).__name__}


def _is_own(form: object) -> bool:
    return isinstance(form, str) and form.startswith(OWN_FORMATS)


def _value(value: str | float) -> str | float:
    """Return a plain value; RefusedError if it is longer than any in a checkpoint."""
    too_long = isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS
    if too_long or (isinstance(value, str) and len(value) > MAX_TEXT):
        raise RefusedError(f"the file holds {shorten(value)}, which is too long to be read")
    return value


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def answer(path: str, numbers: BinaryIO) -> dict[str, Any]:
    """Return the answer on a file; its reason if it is refused."""
    try:
        with Path(path).open("rb") as file:
            data = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
            return Answer(data, numbers).of(read_tree(file, data))
    except RefusedError as error:
        return {"refused": str(error), "needs_code": "code execution" in str(error)}
    except MemoryError:
        told = (
            "reading it takes more memory than any checkpoint needs; it may be damaged or hostile"
        )
        return {"refused": told}
    except OSError as error:
        return {"refused": f"the file cannot be read ({error.strerror or error})"}


def main(path: str, descriptor: str) -> None:
    """Answer on one file."""
    limit_resources(Path(path).stat().st_size)
    # cycles are not searched for: among millions of objects that takes half of the time
    gc.disable()
    with os.fdopen(int(descriptor), "wb") as numbers:
        found = answer(path, numbers)
    text = json.dumps(found)
    sys.stdout.write(text)
    sys.stdout.flush()
    os._exit(0)  # taking millions of objects apart would take seconds more


if __name__ == "__main__":
    main(*sys.argv[1:])
