"""Values of a file as a message shows them: short, and printable by any stream."""

from collections.abc import Iterable

SHOWN = 160
"""Longest text of one value in messages."""
MAX_LISTED = 6
"""Most names that a message lists."""


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
        case int() if value.bit_length() > SHOWN * 4:
            return f"an integer of {value.bit_length()} bits"
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
