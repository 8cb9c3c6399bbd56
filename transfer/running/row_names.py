"""Names of rows of the tables, which are also names of folders; advice on mistyped names."""

from collections.abc import Iterable
from difflib import SequenceMatcher

RESERVED = (
    "records",
    "snapshots",
    "tables",
    "figures",
    "report",
    "reliability",
)
"""Names below the results folder that mean something else, or did in earlier versions."""
MOST_BYTES = 150
"""Longest name; files of curves add task, protocol and schedule, and a file name has 255 bytes."""


def check_row_name(name: str, default: str) -> None:
    """Raise ValueError, with what to do, unless a name can be that of a row and of a folder.

    default: the row's name if none is given, such as the checkpoint's without its ending.
    """
    why = _why_unusable(name)
    if why and name == default:
        raise ValueError(f"the name {_shown(name)} {why}; give the row a --name")
    if why:
        raise ValueError(f"--name {_shown(name)} {why}; choose another")


def _why_unusable(name: str) -> str:
    """Return why a name cannot be that of a row; empty if it can."""
    if not name.strip():
        return "is empty"
    if any(character in name for character in "/\\|"):
        return "holds a slash, a backslash or a bar, but the row's folder and column are called so"
    if name.startswith((".", "-")):
        return f"starts with {name[0]!r}, like a hidden folder or an option"
    if not name.isprintable() or name != name.strip():
        return "holds characters that cannot be seen or are not UTF-8, or a space at its end"
    if len(name.encode()) > MOST_BYTES:
        return f"has {len(name.encode())} bytes, of which {MOST_BYTES} are allowed"
    if name.lower() in RESERVED:
        return f"means something else below the results, as do {', '.join(RESERVED)}"
    return ""


def _shown(name: str) -> str:
    """Return a name in quotes, shortened and without characters that cannot be printed."""
    text = ascii(name)
    return text if len(text) <= 80 else f"{text[:40]} ... {text[-20:]}"


MOST = 3
"""Names that are proposed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known names that resemble a name most, such as "a, b or c"; empty without any.

    Names that begin alike come first, then those with more letters in common.
    """
    asked = name.lower()

    def rank(other: str) -> tuple[bool, float]:
        candidate = other.lower()
        begins = bool(asked) and (candidate.startswith(asked) or asked.startswith(candidate))
        return not begins, -SequenceMatcher(None, asked, candidate).ratio()

    *others, last = sorted(known, key=rank)[:MOST] or [""]
    return f"{', '.join(others)} or {last}" if others else last
