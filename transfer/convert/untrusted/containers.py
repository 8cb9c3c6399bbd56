"""Walks through the containers that a file holds, which may be shared, cyclic or very deep."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any

from transfer.convert.architectures import BackboneError
from transfer.convert.untrusted.budget import (
    CALL_OPERATIONS,
    MAX_DEPTH,
    MAX_TEXT_BYTES,
    Budget,
    escape,
    shorten,
)
from transfer.convert.untrusted.objects import Inert, Storage, StoredTensor
from transfer.convert.untrusted.replacements import NumpyArray

MAX_NAME = 400
"""Longest name of a tensor, in characters."""

MAX_PLAIN = 10_000
"""Plain values and short rows of them, of one container, that get names.

A log or a list of images may hold millions, which nobody reads.
"""
PLAIN = frozenset({str, bytes, int, bool, float, complex, NoneType})

MAX_CONTAINERS = 600_000
"""Most containers of a small file, each counted as often as it would be printed."""
BYTES_PER_CONTAINER = 16
"""Bytes of the file that each allow a further container."""
ITEMS_PER_CONTAINER = 16
"""Items that take as long to pass by as a container."""
CONTAINERS = (dict, list, tuple, set, frozenset)
TEXTS = (str, bytes, bytearray)

REBUILDS = re.compile(r"rebuild|reconstruct")
"""Pattern in the names of functions that make a tensor or an array."""

Leaf = tuple[str, object]


@dataclass(frozen=True)
class Opaque:
    """An object of the file that only a class or function of its own could make."""

    path: str
    """Module and name of the class or function."""
    holds_numbers: bool
    """Whether tensors or their storages are inside, beside those that also stand elsewhere."""

    @property
    def rebuilds_tensor(self) -> bool:
        """Whether it stands for one tensor, by the name of the function."""
        return REBUILDS.search(self.path.rpartition(".")[2]) is not None

    def __str__(self) -> str:
        return f"an object of {shorten(self.path)} and not a plain tensor"


@dataclass(frozen=True)
class Leaves:
    """What a file holds."""

    visible: list[Leaf]
    """Leaves by dotted name, in file order."""
    opaque: dict[str, Opaque]
    """Objects of unknown classes by dotted name, the outermost only."""
    configurations: tuple[str, ...]
    """Known classes of configuration and logs, of which the entries are leaves."""


@dataclass
class _Extent:
    """Size of the text of a container, with everything inside as often as it would be printed."""

    num_containers: int = 1
    num_characters: int = 0
    height: int = 1
    """Levels of containers, this one included."""
    is_cyclic: bool = False
    """Whether a container inside contains itself; its extent depends on where the walk began."""

    def add(self, inner: "_Extent") -> None:
        """Add the extent of a container directly inside."""
        self.num_containers += inner.num_containers
        self.num_characters += inner.num_characters
        self.height = max(self.height, inner.height + 1)
        self.is_cyclic |= inner.is_cyclic

    def check(self, level: int, budget: Budget) -> None:
        """Raise BackboneError if a container at this level of the file is too deep or too long."""
        further = budget.file_bytes // BYTES_PER_CONTAINER
        if (
            level + self.height > MAX_DEPTH
            or self.num_containers > MAX_CONTAINERS + further
            or self.num_characters > MAX_TEXT_BYTES + budget.file_bytes
        ):
            raise BackboneError(
                f"the containers in the file are nested deeper than {MAX_DEPTH}, or so many times "
                f"inside each other that they cannot be printed; the file may be hostile"
            )


def check_extent(tree: object, budget: Budget) -> None:
    """Raise BackboneError if `tree` is nested too deep, or if its text would be too long.

    A list that holds another twice, which holds a third one twice, and so on, is small in memory
    but endless in print. Each container is measured once, except around those in themselves.
    """
    known: dict[int, _Extent] = {}
    enclosing: set[int] = set()
    path: list[tuple[int, _Extent, Iterator[Any]]] = [(0, _Extent(0, 0, 0), iter((tree,)))]
    while True:
        _, outer, waiting = path[-1]
        node = next((item for item in waiting if isinstance(item, CONTAINERS)), None)
        if node is None:
            own, finished, _ = path.pop()
            if not path:
                return
            enclosing.discard(own)
            if not finished.is_cyclic:
                known[own] = finished
            path[-1][1].add(finished)
            path[-1][1].check(len(path), budget)
        elif id(node) in enclosing:
            outer.is_cyclic = True
        elif id(node) in known:
            outer.add(known[id(node)])
            outer.check(len(path), budget)
        else:
            extent, inner = _measure(node)
            budget.operate(CALL_OPERATIONS + extent.num_containers)
            extent.check(len(path), budget)
            enclosing.add(id(node))
            path.append((id(node), extent, iter(inner)))


def _measure(node: Any) -> tuple[_Extent, list[object]]:
    """Return the extent of a container with its short rows of plain values, and what is left."""
    items = [*node, *node.values()] if isinstance(node, dict) else node
    inner: list[object] = []
    num_characters = num_rows = 0
    for item in items:
        if isinstance(item, TEXTS):
            num_characters += len(item)
        elif isinstance(item, tuple | list) and _is_plain(item):
            num_rows += 1
            num_characters += sum(len(value) for value in item if isinstance(value, TEXTS))
        elif isinstance(item, CONTAINERS):
            inner.append(item)
    num_containers = 1 + num_rows + len(items) // ITEMS_PER_CONTAINER
    return _Extent(num_containers, num_characters, 2 if num_rows else 1), inner


def leaves(tree: object, budget: Budget) -> Leaves:
    """Return the leaves of a tree and its objects of unknown classes, by dotted name.

    Each container is visited once, so that cycles end, and those inside such objects last.
    """
    seen: set[int] = set()
    closed: list[tuple[str, Inert]] = []
    known: dict[str, None] = {}
    visible = list(_walk("", tree, seen, closed, budget, known))
    opaque: dict[str, Opaque] = {}
    holders: dict[int, bool] = {}
    for name, outermost in closed:
        if id(outermost) not in holders:
            # objects within an object belong to it
            within = _walk("", outermost.parts, seen, None, budget)
            inner = (leaf for _, leaf in within)
            holders[id(outermost)] = _hold_numbers(inner)
        opaque[name] = Opaque(outermost.path, holders[id(outermost)])
    return Leaves(visible, opaque, tuple(known))


def _hold_numbers(inner: Iterable[object]) -> bool:
    # all of them are walked through: the next object must not claim what is inside this one
    return sum(isinstance(leaf, StoredTensor | Storage) for leaf in inner) > 0


def _walk(
    name: str,
    tree: object,
    seen: set[int],
    closed: list[tuple[str, Inert]] | None,
    budget: Budget,
    known: dict[str, None] | None = None,
) -> Iterator[Leaf]:
    """Yield the leaves; objects of unknown classes are put into `closed`, or walked through.

    known: gets the names of known classes.
    """
    waiting: list[tuple[str, Any]] = [(name, tree)]
    while waiting:
        name, node = waiting.pop()
        if closed is not None and isinstance(node, Inert) and not node.is_known:
            closed.append((name, node))
            continue
        if known is not None and isinstance(node, Inert):
            known[node.path] = None
        children = _children(node)
        if children is None:
            yield name, node.stored if isinstance(node, NumpyArray) else node
        elif id(node) not in seen:
            seen.add(id(node))
            budget.operate(len(children))
            waiting.extend((_join(name, key), child) for key, child in reversed(children))


def _join(name: str, key: object) -> str:
    """Return the name of an entry, cut where it would grow without an end."""
    plain = str(key) if isinstance(key, str | int) else shorten(key)
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
        case NumpyArray(stored=None):
            return [("", node.rest)]
    return None


def _without_masses(pairs: Iterable[tuple[object, object]]) -> list[tuple[object, object]]:
    """Return the pairs, of plain ones only the first MAX_PLAIN: each costs names of its own."""
    kept = list(pairs)
    if len(kept) <= MAX_PLAIN:
        return kept
    return kept[:MAX_PLAIN] + [pair for pair in kept[MAX_PLAIN:] if not _is_plain(pair[1])]


def _is_plain(value: object) -> bool:
    """Return whether a value is plain or a short row of plain values."""
    if isinstance(value, tuple | list):
        return len(value) <= ITEMS_PER_CONTAINER and PLAIN.issuperset(map(type, value))
    return type(value) in PLAIN
