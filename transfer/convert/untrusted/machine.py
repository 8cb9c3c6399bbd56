"""The stack machine of pickles: it builds, completes and calls only what this room defines.

Python's own readers do not serve here: the one in C allocates what a damaged number asks for, the
one in Python reads lines of any length, and both hash keys and call functions at any cost.
"""

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transfer.convert.untrusted.budget import (
    CALL_OPERATIONS,
    MAX_NUMBER_BYTES,
    MAX_TEXT_BYTES,
    MAX_VALUE_BYTES,
    Budget,
    shorten,
)
from transfer.convert.untrusted.objects import (
    Buildable,
    ForeignFunction,
    Inert,
    InertClass,
    Replacement,
)

Opcode = Callable[["PickleMachine"], object]

BYTES_PER_ITEM = 64
"""Memory of one item in a copy of a container."""
STOP = pickle.STOP[0]
MAX_NAME_BYTES = 300
"""Longest line with a name or a number."""


class ByteReader:
    """Bytes of a file, mapped or in memory, read from a position onwards."""

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, num_bytes: int) -> memoryview:
        """Return the next bytes; EOFError if the file ends before."""
        end = self.position + num_bytes
        if num_bytes < 0 or end > len(self.data):
            raise EOFError(f"{shorten(num_bytes)} bytes are announced, the file ends before")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def line(self, limit: int) -> bytes:
        """Return the next line without its end; UnpicklingError if it has more bytes."""
        pieces: list[bytes] = []
        size, step = 0, 64
        while size <= limit:
            piece = bytes(self.data[self.position : self.position + step])
            if not piece:
                raise EOFError(f"the file ends at byte {self.position} within a line")
            length = piece.find(b"\n")
            if length >= 0:
                self.position += length + 1
                return b"".join([*pieces, piece[:length]])
            pieces.append(piece)
            self.position += len(piece)
            size += len(piece)
            step = min(2 * step, 2**20)
        raise pickle.UnpicklingError(f"a line is longer than {limit} bytes")


class PickleMachine:
    """The stack and memo of one pickle."""

    def __init__(
        self,
        reader: ByteReader,
        budget: Budget,
        find_global: Callable[[str, str], object],
        load_persistent: Callable[[object], object],
    ) -> None:
        """Prepare to read; the functions return what a global and a persistent id stand for."""
        self.reader = reader
        self.budget = budget
        self.find_global = find_global
        self.load_persistent = load_persistent
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        """Stacks below the open marks."""
        self.memo: dict[int, object] = {}

    def run(self, opcodes: Sequence[Opcode | None]) -> object:
        """Return the object that the pickle describes; leave the reader behind it.

        opcodes: the function of each opcode by its byte.
        """
        reader, budget, data = self.reader, self.budget, self.reader.data
        end = len(data)
        while True:
            budget.operations -= 1
            if budget.operations < 0:
                budget.operate(0)
            if reader.position >= end:
                raise EOFError(f"the pickle has no end after {end} bytes")
            code = data[reader.position]
            reader.position += 1
            if code == STOP:
                return self.stack.pop()
            execute = opcodes[code]
            if execute is None:
                raise pickle.UnpicklingError(f"there is no opcode {bytes([code])!r}")
            execute(self)

    def push(self, value: object) -> None:
        """Put a value on the stack, which marks may have replaced since it was looked up."""
        self.stack.append(value)

    def pop_marked(self) -> list[Any]:
        """Return the values since the last mark, and remove it."""
        values = self.stack
        self.stack = self.marked.pop()
        return values

    def take_bytes(self, num_bytes: int, limit: int = MAX_VALUE_BYTES) -> bytes:
        """Return a copy of the next bytes."""
        if num_bytes > limit:
            raise pickle.UnpicklingError(f"a value of {num_bytes:,} bytes is announced")
        taken = self.reader.take(num_bytes)
        self.budget.allocate(num_bytes)
        return bytes(taken)

    def push_text(self, content: bytes, encoding: str, errors: str = "strict") -> None:
        """Push decoded text, and pay for what its characters take beyond a byte each."""
        text = content.decode(encoding, errors)
        self.budget.allocate(max(0, text.__sizeof__() - len(content)))
        self.stack.append(text)

    def line(self, limit: int = MAX_NUMBER_BYTES) -> bytes:
        """Return a line with a number or a name, which takes as long as two opcodes."""
        self.budget.operate(1)
        return self.reader.line(limit)

    def text_line(self) -> bytes:
        """Return a line of text, which may be a whole array in protocol 0."""
        line = self.reader.line(MAX_TEXT_BYTES)
        self.budget.allocate(len(line))
        return line

    def unpack(self, form: struct.Struct) -> Any:
        """Return the next number of this form; struct.error if the file ends before."""
        reader = self.reader
        value = form.unpack_from(reader.data, reader.position)[0]
        reader.position += form.size
        return value

    def push_long(self, num_bytes: int) -> None:
        """Push the integer in the next bytes."""
        content = self.take_bytes(num_bytes, MAX_NUMBER_BYTES)
        self.stack.append(int.from_bytes(content, "little", signed=True))

    def push_global(self, module: object, name: object) -> None:
        """Push what a global stands for."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise pickle.UnpicklingError(
                f"a global is named by {type(module).__name__} and {type(name).__name__}, not text"
            )
        if len(module) + len(name) > MAX_NAME_BYTES:
            raise pickle.UnpicklingError(
                f"the name of a global has {len(module) + len(name)} characters, of which "
                f"{MAX_NAME_BYTES} are allowed"
            )
        self.budget.operate(8)  # the name is put together and looked up
        self.stack.append(self.find_global(module, name))

    def call(self, function: object, args: object, keywords: object = None) -> None:
        """Push the result of a replacement's call."""
        if not isinstance(args, tuple) or not isinstance(keywords, dict | None):
            raise pickle.UnpicklingError(f"a call has {shorten(args)} as its arguments")
        self.budget.operate(CALL_OPERATIONS)
        if not isinstance(function, Replacement) or function.copies:
            self.budget.allocate(_cost(args))
        if isinstance(function, Replacement):
            self.stack.append(function(self.budget, *args))
        elif isinstance(function, InertClass | ForeignFunction):
            self.stack.append(function(*args, *(keywords or {}).values()))
        else:
            raise pickle.UnpicklingError(f"a {type(function).__name__} is not callable")

    def remember(self, place: int) -> None:
        """Store the top of the stack in the memo."""
        self.memo[place] = self.stack[-1]

    def recall(self, place: int) -> None:
        """Push a value of the memo."""
        if place not in self.memo:
            raise pickle.UnpicklingError(f"value {place} of the memo is absent")
        self.stack.append(self.memo[place])

    def set_items(self, pairs: list[Any]) -> None:
        """Store alternating keys and values in the dict below them."""
        target = self.stack[-1]
        for key, value in _pairs(pairs):
            self.budget.pay_for_key(key)
            if isinstance(target, dict):
                target[key] = value
            else:
                _as_inert(target).parts.append({key: value})

    def extend(self, items: list[Any]) -> None:
        """Append items to the list below them."""
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        else:
            _as_inert(target).parts.extend(items)

    def add_items(self, items: list[Any]) -> None:
        """Add items to the set below them."""
        target = self.stack[-1]
        if not isinstance(target, set):
            _as_inert(target).parts.extend(items)
            return
        for item in items:
            self.budget.pay_for_key(item)
            target.add(item)

    def build(self) -> None:
        """Set the state of the object below it, if it is one of ours."""
        state = self.stack.pop()
        target = self.stack[-1]
        self.budget.operate(CALL_OPERATIONS)
        if isinstance(state, tuple):  # text of an array is copied, bytes are not
            self.budget.allocate(sum(len(part) for part in state if isinstance(part, str)))
        if not isinstance(target, Buildable):
            raise pickle.UnpicklingError(f"the pickle tries to alter a {type(target).__name__}")
        target.set_state(state)


def _as_inert(target: object) -> Inert:
    if not isinstance(target, Inert):
        raise pickle.UnpicklingError(f"the pickle tries to extend a {type(target).__name__}")
    return target


def _cost(values: tuple[object, ...], *, inside: bool = True) -> int:
    """Return the bytes that a function could need for copies of its arguments."""
    total = 0
    for value in values:
        if isinstance(value, str | bytes | bytearray):
            total += len(value)
        elif isinstance(value, tuple | list | dict | set | frozenset):
            total += BYTES_PER_ITEM * len(value)
            if inside and isinstance(value, tuple):
                total += _cost(value, inside=False)
    return total


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    if len(items) % 2:
        raise pickle.UnpicklingError(f"{len(items)} items of a dict are no pairs of key and value")
    return zip(items[::2], items[1::2], strict=True)
