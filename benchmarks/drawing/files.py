"""Files of figures (CSV, SVG and PNG) and their page."""

import html
import re
from collections.abc import Container
from pathlib import Path

from benchmarks.drawing.figure import Figure
from benchmarks.drawing.kinds import Picture
from benchmarks.results.tables import csv_text, escape
from pretrain.running.atomic_files import explain_write_errors, write_text, write_whole

SUFFIXES = ("png", "svg", "csv")
"""Suffixes in writing order; the CSV, written last, marks completion."""
PAGE = "README.md"
OPENING = "# Figures\n\nThe papers' figures, redrawn."
OWN = "benchmarks.figures"
"""Identifier in the metadata of our SVG files."""
NAMES = re.compile(r"[a-z]+_figure\d+[a-z]?(\..*)?")
"""Names of pictures; earlier versions added further words."""


def write_picture(figure: Figure, picture: Picture, folder: Path) -> bool:
    """Write the three files if missing; return whether it was drawn."""
    if is_drawn(figure, picture, folder):
        return False
    from benchmarks.drawing import panels

    # draw everything before the first file is written, so that no figure is incomplete
    contents = panels.render(picture.panels, figure.title, figure.caption(picture), OWN)
    numbers = csv_text(picture.header, picture.rows)
    contents = {**contents, "csv": numbers.encode(errors="backslashreplace")}
    for suffix in SUFFIXES:
        write_whole(folder / f"{figure.file_name}.{suffix}", contents[suffix], "--results")
    return True


def is_drawn(figure: Figure, picture: Picture, folder: Path) -> bool:
    """Return whether all three files exist, with these numbers and this caption."""
    png, svg, csv_file = (folder / f"{figure.file_name}.{suffix}" for suffix in SUFFIXES)
    return (
        csv_file.is_file()
        and png.is_file()
        and csv_file.read_text(encoding="utf-8") == csv_text(picture.header, picture.rows)
        and metadata_of(svg).get("description") == figure.caption(picture)
    )


def metadata_of(svg: Path) -> dict[str, str]:
    """Return title, description and identifier of an SVG file, if any."""
    if not svg.is_file():
        return {}
    # matplotlib writes the metadata first; the remaining text may have megabytes
    text = svg.read_text(encoding="utf-8", errors="replace").partition("</metadata>")[0]
    entries = re.findall(r"<dc:(title|description|identifier)>(.*?)</dc:\1>", text, flags=re.DOTALL)
    return {name: html.unescape(content) for name, content in entries}


def remove_stale(current: Container[str], folder: Path) -> None:
    """Remove our pictures that are not in `kept`.

    Their records are gone, or another kind is drawn.
    """
    for svg in sorted(folder.glob("*.svg")):
        is_picture = NAMES.fullmatch(svg.stem) and metadata_of(svg).get("identifier") == OWN
        if is_picture and svg.stem not in current:
            # remove the SVG last, so that the next call completes an interrupted removal
            for suffix in ("csv", "png", "svg"):
                path = svg.with_suffix(f".{suffix}")
                with explain_write_errors(path, "--results"):
                    path.unlink(missing_ok=True)


def write_page(folder: Path, command: str) -> None:
    """Write a page with all pictures; without pictures, remove it."""
    page = folder / PAGE
    sections = [f"{OPENING} Made by `{command}`."]
    for path in sorted(folder.glob("*_figure*.svg")):
        about = metadata_of(path)
        if title := escape(about.get("title", "")):
            files = " · ".join(f"[{s}]({path.with_suffix(f'.{s}').name})" for s in ("csv", "svg"))
            caption = escape(about.get("description", ""))
            picture = path.with_suffix(".png").name
            sections.append(f"## {title}\n\n![{title}]({picture})\n\n{caption} {files}")
    if len(sections) > 1:
        write_text(page, "\n\n".join(sections) + "\n", "--results")
    elif page.exists() and page.read_bytes().startswith(OPENING.encode()):
        with explain_write_errors(page, "--results"):
            page.unlink()
