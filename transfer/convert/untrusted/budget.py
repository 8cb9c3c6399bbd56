"""Limits of what reading one file may cost, whatever the file claims.

A pickle of thirty bytes can ask for gigabytes, and one of a few hundred for ages. A reader pays
here before it allocates or repeats anything, and ends with a BackboneError where the budget ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from transfer.convert.architectures import BackboneError

MAX_OPERATIONS = 4_000_000
"""Opcodes and similar steps of a small file; 100,000 log entries of three numbers take most."""
BYTES_PER_OPERATION = 10
"""Bytes of the file that each allow a further operation; a path with its class has 40 and more."""
MAX_FURTHER_OPERATIONS = 6_500_000
"""Most further operations: all together take half of the ten seconds on a processor of 2023.

A list of the 1,281,167 images of ImageNet with their classes takes 8 million in all, and one of
their classes besides 10 million.
"""
MAX_READ_BYTES = 3 * 2**30
"""Bytes that are copied out of the file as text, arrays inside pickles and the like."""
MAX_SECOND_COPY_BYTES = 3 * 2**29
"""Bytes of second copies, such as text of Python 2 that is turned into bytes."""
SPARE_BYTES = 2**29
"""Bytes that may be allocated beyond these."""
MAX_VALUE_BYTES = 2**30
"""Longest value in bytes."""
MAX_TEXT_BYTES = 2**27
"""Longest text; one wide character in it makes Python store every character in four bytes."""
MAX_NUMBER_BYTES = 1024
"""Longest integer; arithmetic and hashes of longer ones are slow."""
MAX_DEPTH = 500
"""Deepest nesting of containers."""
MAX_KEY_NODES = 256
"""Largest tuple as a key, counted with what it contains: hashing visits shared parts again."""
CALL_OPERATIONS = 4
"""Operations that a call in a pickle counts for, since it may make several objects."""
KEYS_PER_OPERATION = 16
"""Comparisons of colliding keys that take as long as one operation."""
SHOWN = 80
"""Longest text of one value in messages."""


MAX_LISTED = 6
"""Most names that a message lists."""


@dataclass
class Budget:
    """Remaining budget for reading a file of `file_bytes` bytes."""

    file_bytes: int
    operations: int = field(init=False)
    bytes_left: int = field(init=False)
    _num_composite_keys: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.operations = self._max_operations()
        copies = min(self.file_bytes, MAX_READ_BYTES), min(self.file_bytes, MAX_SECOND_COPY_BYTES)
        self.bytes_left = sum(copies) + SPARE_BYTES

    def _max_operations(self) -> int:
        return MAX_OPERATIONS + min(self.file_bytes // BYTES_PER_OPERATION, MAX_FURTHER_OPERATIONS)

    def allocate(self, num_bytes: int) -> None:
        """Pay for memory; BackboneError if too little is left."""
        if num_bytes > self.bytes_left:
            raise BackboneError(
                f"the file is {self.file_bytes:,} bytes long, but reading it would take "
                f"{shorten(num_bytes)} bytes and more of memory; it may be damaged or hostile"
            )
        self.bytes_left -= num_bytes

    def operate(self, count: int) -> None:
        """Pay for operations; BackboneError if too few are left."""
        self.operations -= count
        if self.operations < 0:
            raise BackboneError(
                f"the file takes more than {self._max_operations():,} operations to read, which no "
                f"checkpoint needs; it may be damaged or hostile"
            )

    def pay_for_key(self, key: object) -> None:
        """Pay for a key of a dict or set; BackboneError if hashing it could take long.

        Hashes of text are random, those of small numbers distinct. Integers beyond 60 bits and
        tuples can be made to collide, so each counts as if it collided with all before it.
        """
        if isinstance(key, str | bytes | float | None) or (
            isinstance(key, int) and abs(key) < 2**60
        ):
            return
        self._num_composite_keys += 1
        self.operate(1 + self._num_composite_keys // KEYS_PER_OPERATION)
        waiting = [key]
        for _ in range(MAX_KEY_NODES):
            if not waiting:
                return
            inner = waiting.pop()
            if isinstance(inner, tuple | frozenset):
                if len(inner) > MAX_KEY_NODES:
                    break
                waiting.extend(inner)
        raise BackboneError(
            f"a key of a dict holds more than {MAX_KEY_NODES} values; the file may be hostile"
        )


def escape(text: str) -> str:
    """Return text that any stream can print: halves of surrogate pairs become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def list_briefly(names: Iterable[str]) -> str:
    """Return the first names of a file for a message, each cut where it is long."""
    listed = [name if len(name) <= SHOWN else f"{name[:SHOWN]}..." for name in names]
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    return ", ".join(listed[:MAX_LISTED]) + more


def shorten(value: object, *, inside: bool = True) -> str:
    """Return a value of a file for a message, as `repr` would where that is short.

    inside: also describe the first items of a tuple or list.
    """
    match value:
        case str() | bytes() if len(value) > SHOWN:
            return f"{value[:SHOWN]!r}..."
        case str() | bytes() | int() | float() | complex() | None:
            text = repr(value)
            return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        case tuple() | list() if inside:
            shown = [shorten(item, inside=False) for item in value[:6]]
            brackets = "()" if isinstance(value, tuple) else "[]"
            more = ["..."] if len(value) > 6 else []
            return brackets[0] + ", ".join(shown + more) + brackets[1]
        case tuple() | list() | dict() | set() | frozenset():
            return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
