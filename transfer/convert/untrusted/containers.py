"""Walks through the containers that a file holds, which may be shared, cyclic or very deep."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any

from transfer.convert.architectures import BackboneError
from transfer.convert.untrusted.budget import (
    MAX_DEPTH,
    MAX_TEXT_BYTES,
    shorten,
)
from transfer.convert.untrusted.objects import Inert, Storage, StoredTensor
from transfer.convert.untrusted.replacements import NumpyArray

MAX_NAME = 400
"""Longest name of a tensor, in characters."""

MAX_PLAIN = 10_000
"""Plain values of one container that get names; a log may hold millions, which nobody reads."""

MAX_CONTAINERS = 600_000
"""Most containers of a file, each counted as often as it would be printed."""
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


def check_extent(tree: object) -> None:
    """Raise BackboneError if `tree` is nested too deep, or if its text would be too long.

    A list that holds another twice, which holds a third one twice, and so on, is small in memory
    but endless in print. This walk goes where `repr` goes, until the budget ends.
    """
    path: list[tuple[int, Iterator[object]]] = []
    num_containers = num_characters = 0
    waiting: Iterator[object] = iter((tree,))
    enclosing: set[int] = set()
    while True:
        node = next((item for item in waiting if isinstance(item, CONTAINERS)), None)
        if node is None:
            if not path:
                return
            own, waiting = path.pop()
            enclosing.discard(own)
        elif id(node) not in enclosing:
            items = [*node, *node.values()] if isinstance(node, dict) else list(node)
            num_containers += 1 + len(items) // ITEMS_PER_CONTAINER
            num_characters += sum(len(item) for item in items if isinstance(item, TEXTS))
            enclosing.add(id(node))
            path.append((id(node), waiting))
            waiting = iter(items)
        if (
            len(path) > MAX_DEPTH
            or num_containers > MAX_CONTAINERS
            or num_characters > MAX_TEXT_BYTES
        ):
            raise BackboneError(
                f"the containers in the file are nested deeper than {MAX_DEPTH}, or so many times "
                f"inside each other that they cannot be printed; the file may be hostile"
            )


def leaves(tree: object) -> Leaves:
    """Return the leaves of a tree and its objects of unknown classes, by dotted name.

    Each container is visited once, so that cycles end, and those inside such objects last.
    """
    seen: set[int] = set()
    closed: list[tuple[str, Inert]] = []
    visible = list(_walk("", tree, seen, closed))
    opaque: dict[str, Opaque] = {}
    holders: dict[int, bool] = {}
    for name, outermost in closed:
        if id(outermost) not in holders:
            # objects within an object belong to it
            inner = (leaf for part in outermost.parts for _, leaf in _walk("", part, seen, None))
            holders[id(outermost)] = _hold_numbers(inner)
        opaque[name] = Opaque(outermost.path, holders[id(outermost)])
    return Leaves(visible, opaque)


def _hold_numbers(inner: Iterable[object]) -> bool:
    # all of them are walked through: the next object must not claim what is inside this one
    return sum(isinstance(leaf, StoredTensor | Storage) for leaf in inner) > 0


def _walk(
    name: str, tree: object, seen: set[int], closed: list[tuple[str, Inert]] | None
) -> Iterator[Leaf]:
    """Yield the leaves; objects of unknown classes are put into `closed`, or walked through."""
    waiting: list[tuple[str, Any]] = [(name, tree)]
    while waiting:
        name, node = waiting.pop()
        if closed is not None and isinstance(node, Inert) and not node.is_known:
            closed.append((name, node))
            continue
        children = _children(node)
        if children is None:
            yield name, node.stored if isinstance(node, NumpyArray) else node
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.extend((_join(name, key), child) for key, child in reversed(children))


def _join(name: str, key: object) -> str:
    """Return the name of an entry, cut where it would grow without an end."""
    word = key if isinstance(key, str) else str(key) if isinstance(key, int) else shorten(key)
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
    """Return the pairs, of plain values only the first MAX_PLAIN: each costs a name of its own."""
    plain = (str, bytes, int, float, complex, NoneType)
    kept = list(pairs)
    if len(kept) <= MAX_PLAIN:
        return kept
    return kept[:MAX_PLAIN] + [pair for pair in kept[MAX_PLAIN:] if not isinstance(pair[1], plain)]
