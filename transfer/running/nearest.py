"""Advice on a mistyped name."""

from collections.abc import Iterable
from difflib import SequenceMatcher

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
