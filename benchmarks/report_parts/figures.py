"""The papers' figures as results/figures holds them, embedded as images that can run nothing."""

import base64
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drawing.files import metadata_of
from benchmarks.pages.records import FIGURES

LARGEST_BYTES = 1_000_000
"""Largest figure that is embedded."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure."""

    title: str
    source: str
    """Address that holds the whole image; empty for a figure that is too large."""


def figures(results: Path) -> list[Figure]:
    """Return the SVG files of a results folder in order of their names.

    In an image element, a browser runs no script of an SVG and loads nothing for it.
    """
    found = []
    for path in sorted((results / FIGURES).rglob("*.svg")):
        source = ""
        if path.stat().st_size <= LARGEST_BYTES:
            text = base64.b64encode(path.read_bytes()).decode()
            source = f"data:image/svg+xml;base64,{text}"
        title = metadata_of(path).get("title") or path.stem.replace("_", " ")
        found.append(Figure(title=title, source=source))
    return found
