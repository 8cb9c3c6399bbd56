"""Files of figures: CSV, SVG and PNG, all three or none, and the page that lists them."""

import html
import re
from collections.abc import Container
from pathlib import Path

from benchmarks.drawing.figure import Picture
from benchmarks.results.tables import csv_text, escape
from pretrain.running.atomic_files import explain_write_errors, write_text, write_whole

SUFFIXES = ("png", "svg", "csv")
"""Kinds of files in the order of writing; the CSV comes last because it says that all is drawn."""
PAGE = "README.md"
OPENING = "# Figures\n\nThe papers' figures, redrawn."
OWN = "benchmarks.figures"
"""Identifier in the metadata of our SVG files."""


def write_picture(picture: Picture, folder: Path) -> bool:
    """Write the three files unless they are there already; return whether it was drawn."""
    if is_drawn(picture, folder):
        return False
    from benchmarks.drawing.style import render

    svg, png = render(picture, OWN)
    # everything is drawn before the first file is written: a failure leaves no half figure
    numbers = csv_text(picture.header, picture.rows)
    contents = {"csv": numbers.encode(errors="backslashreplace"), "png": png, "svg": svg}
    for suffix in SUFFIXES:
        write_whole(folder / f"{picture.file_name}.{suffix}", contents[suffix], "--results")
    return True


def is_drawn(picture: Picture, folder: Path) -> bool:
    """Return whether all three files are there, with these numbers and this caption."""
    png, svg, csv_file = (folder / f"{picture.file_name}.{suffix}" for suffix in SUFFIXES)
    return (
        csv_file.is_file()
        and png.is_file()
        and csv_file.read_text(encoding="utf-8") == csv_text(picture.header, picture.rows)
        and metadata_of(svg).get("description") == " ".join(picture.caption)
    )


def metadata_of(svg: Path) -> dict[str, str]:
    """Return title, description and identifier of an SVG file; empty for other and absent files."""
    if not svg.is_file():
        return {}
    # matplotlib writes the metadata first; the paths behind them may be megabytes
    text = svg.read_text(encoding="utf-8", errors="replace").partition("</metadata>")[0]
    found = re.findall(r"<dc:(title|description|identifier)>(.*?)</dc:\1>", text, flags=re.DOTALL)
    return {name: html.unescape(words) for name, words in found}


def remove_stale(figure_name: str, kept: Container[str], folder: Path) -> None:
    """Remove our pictures of a figure that are not kept: their records are gone or renumbered."""
    for svg in sorted(folder.glob(f"{figure_name}*.svg")):
        of_figure = svg.stem == figure_name or svg.stem.startswith(f"{figure_name}.")
        if of_figure and svg.stem not in kept and metadata_of(svg).get("identifier") == OWN:
            # the SVG goes last, so that an interrupted removal is completed by the next one
            for suffix in ("csv", "png", "svg"):
                path = svg.with_suffix(f".{suffix}")
                with explain_write_errors(path, "--results"):
                    path.unlink(missing_ok=True)


def write_page(folder: Path, command: str) -> None:
    """Write the page of all pictures in the folder with their captions; without any, remove it."""
    found = [(path, metadata_of(path)) for path in sorted(folder.glob("*_figure*.svg"))]
    page = folder / PAGE
    parts = [f"{OPENING} Made by `{command}`."]
    for path, about in found:
        if title := escape(about.get("title", "")):
            files = " · ".join(f"[{s}]({path.with_suffix(f'.{s}').name})" for s in ("csv", "svg"))
            caption = escape(about.get("description", ""))
            picture = path.with_suffix(".png").name
            parts.append(f"## {title}\n\n![{title}]({picture})\n\n{caption} {files}")
    if len(parts) > 1:
        write_text(page, "\n\n".join(parts) + "\n", "--results")
    elif page.exists() and page.read_bytes().startswith(OPENING.encode()):
        with explain_write_errors(page, "--results"):
            page.unlink()
