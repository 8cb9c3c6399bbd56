"""Files of figures: CSV, SVG and PNG, all three or none, and the page that lists them.

A picture is drawn again only if its content, its drawing or matplotlib has changed; the SVG holds a
hash of these.
"""

import csv
import hashlib
import html
import io
import re
from collections.abc import Container, Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks.drawing.figure import ExamplePanel, GridPanel, Picture
from benchmarks.pages.table_rows import escape
from pretrain.running.atomic_files import explain_write_errors, write_whole

SUFFIXES = ("csv", "png", "svg")
"""Kinds of files in the order of writing; the SVG comes last because it holds the hash."""
PAGE = "README.md"
OPENING = "# Figures\n\nThe papers' figures, redrawn."
HASH = "sha256:"
"""Start of the hash in an SVG of ours."""
DRAWING = ("style", "panels")
"""Files of this room on which a picture's looks depend."""


def write_picture(picture: Picture, folder: Path) -> bool:
    """Write the three files unless they are there already; return whether it was drawn."""
    if is_drawn(picture, folder):
        return False
    from benchmarks.drawing.style import render

    svg, png = render(picture, identifier_of(picture))
    # everything is drawn before the first file is written: a failure leaves no half figure
    contents = {"csv": csv_text(picture).encode(), "png": png, "svg": svg}
    for suffix in SUFFIXES:
        write_whole(folder / f"{picture.file_name}.{suffix}", contents[suffix], "--results")
    return True


def is_drawn(picture: Picture, folder: Path) -> bool:
    """Return whether all three files are there, with this content."""
    paths = [folder / f"{picture.file_name}.{suffix}" for suffix in SUFFIXES]
    return all(map(Path.exists, paths)) and _identifier(paths[-1]) == identifier_of(picture)


def csv_text(picture: Picture) -> str:
    """Return the numbers of a picture."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(picture.header)
    writer.writerows(picture.rows)
    return text.getvalue()


def identifier_of(picture: Picture) -> str:
    """Return the hash of a picture's content, of the code that draws it and of matplotlib."""
    content = hashlib.sha256()
    for text in (csv_text(picture), picture.title, *picture.caption, _drawing()):
        content.update(text.encode() + b"\0")
    for panel in picture.panels:
        for tile in panel.tiles if isinstance(panel, GridPanel | ExamplePanel) else ():
            content.update(tile.pixels.tobytes())
        content.update(repr(panel).encode())
    return f"{HASH}{content.hexdigest()[:32]}"


@cache
def _drawing() -> str:
    folder = Path(__file__).parent
    source = b"".join((folder / f"{name}.py").read_bytes() for name in DRAWING)
    return f"matplotlib {version('matplotlib')} {hashlib.sha256(source).hexdigest()}"


def _identifier(svg: Path) -> str:
    return metadata_of(svg).get("identifier", "")


def metadata_of(svg: Path) -> dict[str, str]:
    """Return title, description and identifier of an SVG file; empty for other files."""
    # matplotlib writes the metadata first; the paths behind them may be megabytes
    text = svg.read_text(encoding="utf-8", errors="replace")[:20_000]
    found = re.findall(r"<dc:(title|description|identifier)>(.*?)</dc:\1>", text, flags=re.DOTALL)
    return {name: html.unescape(words) for name, words in found}


def remove_stale(figure_name: str, kept: Container[str], folder: Path) -> None:
    """Remove the pictures of a figure that are not kept: their records are gone or renumbered.

    Only an SVG that holds our hash, and the CSV and PNG of its name, are removed.
    """
    for svg in sorted(folder.glob(f"{figure_name}*.svg")):
        ours = svg.stem == figure_name or svg.stem.startswith(f"{figure_name}.")
        if not ours or svg.stem in kept or not _identifier(svg).startswith(HASH):
            continue
        # the SVG goes last, so that an interrupted removal is completed by the next one
        for suffix in SUFFIXES:
            path = svg.with_suffix(f".{suffix}")
            with explain_write_errors(path, "--results"):
                path.unlink(missing_ok=True)


def write_page(folder: Path, command: str) -> Path | None:
    """Write the page of all pictures in the folder with their captions; None without pictures."""
    pictures = list(_drawn(folder))
    page = folder / PAGE
    if not pictures:
        if page.exists() and page.read_bytes().startswith(OPENING.encode()):
            with explain_write_errors(page, "--results"):
                page.unlink()
        return None
    parts = [f"{OPENING} Made by `{command}`."]
    for path, about in pictures:
        files = " · ".join(f"[{s}]({path.with_suffix(f'.{s}').name})" for s in ("csv", "svg"))
        picture = path.with_suffix(".png").name
        parts.append(
            f"## {escape(about['title'])}\n\n![{escape(about['title'])}]({picture})\n\n"
            f"{escape(about.get('description', ''))} {files}"
        )
    content = ("\n\n".join(parts) + "\n").encode()
    if not page.exists() or page.read_bytes() != content:
        write_whole(page, content, "--results")
    return page


def _drawn(folder: Path) -> Iterable[tuple[Path, dict[str, str]]]:
    for path in sorted(folder.glob("*_figure*.svg")):
        about = metadata_of(path)
        if about.get("title"):
            yield path, about
