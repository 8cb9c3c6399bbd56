"""Values by label, as text or as HTML for notebooks."""

import html
import textwrap
from collections.abc import Mapping

MAX_CHARACTERS = 300
"""Maximum length of a value; longer ones are truncated."""


def table_text(title: str, values: Mapping[str, object]) -> str:
    """Return the title and an indented line per value, without empty ones."""
    texts = _short_texts(values)
    width = max(map(len, texts), default=0)
    return "\n".join([title, *(f"  {label:<{width}}  {text}" for label, text in texts.items())])


def table_html(title: str, values: Mapping[str, object]) -> str:
    """Return title and values as an HTML table, without empty ones."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
        f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
        for label, text in _short_texts(values).items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def _short_texts(values: Mapping[str, object]) -> dict[str, str]:
    return {
        label: textwrap.shorten(text, MAX_CHARACTERS, placeholder=" ...")
        for label, value in values.items()
        if (text := value_text(value))
    }


def value_text(value: object) -> str:
    """Return a nested value as text; empty for None and empty collections."""
    if isinstance(value, Mapping):
        texts = {key: value_text(entry) for key, entry in value.items()}
        return ", ".join(f"{key} {text}" for key, text in texts.items() if text)
    if isinstance(value, list | tuple):
        return " ".join(map(value_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
