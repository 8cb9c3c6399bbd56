"""Files of figures: CSV, SVG and PNG, all three or none, and the page that lists them.

A picture is drawn again only if its content, its drawing or matplotlib has changed; the SVG holds a
hash of these.
"""

import csv
import hashlib
import html
import io
import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks.drawing.figure import ExamplePanel, GridPanel, Picture, path_of
from benchmarks.pages.markdown import escape
from transfer.running.atomic_files import write_whole

SUFFIXES = ("csv", "png", "svg")
"""Kinds of files in the order of writing; the SVG comes last because it holds the hash."""
PAGE = "README.md"
DRAWING = ("style", "panels", "measures")
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
        write_whole(path_of(folder, picture.file_name, suffix), contents[suffix], "--results")
    return True


def is_drawn(picture: Picture, folder: Path) -> bool:
    """Return whether all three files are there, with this content."""
    paths = {suffix: path_of(folder, picture.file_name, suffix) for suffix in SUFFIXES}
    if not all(path.exists() for path in paths.values()):
        return False
    return metadata_of(paths["svg"]).get("identifier", "") == identifier_of(picture)


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
    return f"sha256:{content.hexdigest()[:32]}"


@cache
def _drawing() -> str:
    folder = Path(__file__).parent
    source = b"".join((folder / f"{name}.py").read_bytes() for name in DRAWING)
    return f"matplotlib {version('matplotlib')} {hashlib.sha256(source).hexdigest()}"


def metadata_of(svg: Path) -> dict[str, str]:
    """Return title, description and identifier of an SVG file; empty for other files."""
    text = svg.read_text(encoding="utf-8", errors="replace")[:20_000]
    found = re.findall(r"<dc:(title|description|identifier)>(.*?)</dc:\1>", text, flags=re.DOTALL)
    return {name: html.unescape(words) for name, words in found}


def write_page(folder: Path, command: str) -> Path | None:
    """Write the page of all pictures in the folder with their captions; None without pictures."""
    pictures = list(_drawn(folder))
    if not pictures:
        return None
    parts = [f"# Figures\n\nThe papers' figures, redrawn. Made by `{command}`."]
    for path, about in pictures:
        files = " · ".join(f"[{s}]({path.with_suffix(f'.{s}').name})" for s in ("csv", "svg"))
        picture = path.with_suffix(".png").name
        parts.append(
            f"## {escape(about['title'])}\n\n![{escape(about['title'])}]({picture})\n\n"
            f"{escape(about.get('description', ''))} {files}"
        )
    page, content = folder / PAGE, ("\n\n".join(parts) + "\n").encode()
    if not page.exists() or page.read_bytes() != content:
        write_whole(page, content, "--results")
    return page


def _drawn(folder: Path) -> Iterable[tuple[Path, dict[str, str]]]:
    for path in sorted(folder.glob("*_figure*.svg")):
        about = metadata_of(path)
        if about.get("title"):
            yield path, about
