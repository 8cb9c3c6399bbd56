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
