"""Facts by label as text of one screen, and as HTML for notebooks."""

import html
import textwrap
from collections.abc import Mapping

MAX_CHARACTERS = 300
"""Longest value that is shown; the objects have all of it."""


def table_text(title: str, facts: Mapping[str, object]) -> str:
    """Return the title and an indented line per fact; empty facts are left out."""
    shown = _shown(facts)
    width = max(map(len, shown), default=0)
    return "\n".join([title, *(f"  {label:<{width}}  {text}" for label, text in shown.items())])


def table_html(title: str, facts: Mapping[str, object]) -> str:
    """Return the same as an HTML table."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
        f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
        for label, text in _shown(facts).items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def _shown(facts: Mapping[str, object]) -> dict[str, str]:
    texts = {label: _text(value) for label, value in facts.items()}
    return {
        label: textwrap.shorten(text, MAX_CHARACTERS, placeholder=" ...")
        for label, text in texts.items()
        if text
    }


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        texts = {key: _text(entry) for key, entry in value.items()}
        return ", ".join(f"{key} {text}" for key, text in texts.items() if text)
    return "" if value is None else str(value)
