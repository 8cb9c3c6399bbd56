"""The papers' figures as results/figures holds them, embedded as images that can run nothing."""

import base64
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drawing.files import metadata_of
from benchmarks.pages.records import FIGURES

LARGEST_BYTES = 1_000_000
MOST_BYTES = 4_000_000
"""Largest figure, and all of them together: the page stays small enough to be sent around."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure."""

    title: str
    source: str
    """Address that holds the whole image."""


def figures(results: Path) -> list[Figure]:
    """Return the SVG files of a results folder in order of their names; large ones are left out.

    In an image element, a browser runs no script of an SVG and loads nothing for it.
    """
    found = []
    left = MOST_BYTES
    for path in sorted((results / FIGURES).rglob("*.svg")):
        content = path.read_bytes()
        if len(content) > min(LARGEST_BYTES, left):
            continue
        left -= len(content)
        text = base64.b64encode(content).decode()
        title = metadata_of(path).get("title") or path.stem.replace("_", " ")
        found.append(Figure(title=title, source=f"data:image/svg+xml;base64,{text}"))
    return found
