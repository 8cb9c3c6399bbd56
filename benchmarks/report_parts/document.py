"""Texts, tables, charts and images as HTML; every value is escaped."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from markupsafe import Markup, escape

from benchmarks.report_parts.charts import UNMARKED, Chart, svg
from benchmarks.results.tables import Cell, Grid, Line, grid, plain
from transfer.galleries.tile import MAX_BYTES

Address = Callable[[Iterable[str]], str]
"""Function from record files to the anchor of their explanation."""
JPEG = b"\xff\xd8\xff"
WIDE_COLUMNS, TALL_ROWS = 4, 25
"""Limits above which a table is wide, or scrolls."""


class Sheet(NamedTuple):
    """A table with sortable rows that can be copied."""

    title: str
    grid: Grid
    note: str = ""
    kind: str = ""
    """Class of the table."""
    id: str = ""
    """Anchor of a table without title, alone in its section."""
    texts: Mapping[str, str] = MappingProxyType({})
    """The table by format, to copy; otherwise the script formats it."""


class Fold(NamedTuple):
    """Content that is hidden until the reader opens it."""

    name: str
    text: str
    num: str
    """Amount of content, as text."""
    parts: Sequence["Part"]
    kind: str = "paper-table"
    is_open: bool = False


class Image(NamedTuple):
    """One image with its caption."""

    source: str
    """Address that contains its whole file."""
    caption: str
    group: str = ""
    name: str = ""
    """File of the image."""


class Gallery(NamedTuple):
    """Images of one record, or of pre-training, or the papers' figures."""

    title: str
    images: Sequence[Image]
    note: str = ""
    kind: str = "gallery small"
    """Class of the element; "neighbors": a query, then its nearest images."""


Part = str | Sheet | Fold | Chart | Gallery


def html(element: Part, address: Address) -> str:
    """Return one part of a section as HTML, with every value escaped."""
    if isinstance(element, str):
        return "\n".join(_text(block) for block in element.split("\n\n") if block)
    if isinstance(element, Sheet):
        return _sheet(element, address)
    if isinstance(element, Chart):
        legend = ""
        for name, (color, marker) in element.looks.items():
            sign = marker if element.markers else UNMARKED
            style = f'aria-hidden="true" style="color:{color}"'
            legend += f"<li><span {style}>{sign}</span> {escape(name)}</li>"
        caption = f"<figcaption>{escape(element.title)}</figcaption>{svg(element)}"
        return f'<figure>{caption}<ul class="legend">{legend}</ul>{_note(element.note)}</figure>'
    if isinstance(element, Gallery):
        title = f"<h3>{escape(element.title)}</h3>" if element.title else ""
        images = "".join(map(_image, element.images))
        gallery = f'<div class="{element.kind}">{images}</div>'
        return f'<div class="wide">{title}{_note(element.note)}{gallery}</div>'
    texts = (("name", element.name), ("what", element.text), ("count", element.num))
    spans = "".join(f'<span class="{kind}">{escape(text)}</span>' for kind, text in texts)
    contents = "\n".join(html(inner, address) for inner in element.parts)
    start = f'<details class="{element.kind}"{" open" if element.is_open else ""}>'
    return f'{start}<summary>{spans}</summary><div class="figures">{contents}</div></details>'


def inline(text: str) -> Markup:
    """Convert one line of markdown (code, bold, links with titles, escapes) to HTML."""
    pattern = r"\\([!-/:-@\[-`{-~])|`([^`]+)`|\*\*(.+?)\*\*"
    pattern += r'|\[([^\]]*)\]\((\S+) "(.*?)"\)|([^\\`*[]+|.)'

    def element(match: re.Match[str]) -> str:
        sign, code, bold, link_text, link, title, plain_text = match.groups()
        if code:
            return f"<code>{escape(code)}</code>"
        if link:
            return f'<a href="{escape(link)}" title="{escape(title)}">{escape(link_text)}</a>'
        return f"<b>{escape(bold)}</b>" if bold else escape(sign or plain_text)

    if not re.search(r"[\\`*[]", text):  # most texts, and many times as fast
        return escape(text)
    return Markup(re.sub(pattern, element, text))


def _text(block: str) -> str:
    """Return a paragraph, a heading or a list."""
    if block.startswith("#"):
        return f"<h3>{inline(block.lstrip('# '))}</h3>"
    items = re.findall(r"^(?:- |\d+\. )(.*)$", block, flags=re.MULTILINE)
    if len(items) < block.count("\n") + 1:
        return _note(block)
    kind = "ul" if block.startswith("-") else "ol"
    lines = "".join(f"<li>{inline(item)}</li>" for item in items)
    return f'<{kind} class="below">{lines}</{kind}>'


def _note(note: str) -> str:
    return f'<p class="below">{inline(note)}</p>' if note else ""


def _image(image: Image) -> str:
    kind = escape(f"tile {image.group.replace(' ', '-')}".strip())
    caption, name = escape(image.caption), escape(image.name)
    image_html = f'<img src="{image.source}" alt="{caption}" title="{name}" decoding="async">'
    image_html = image_html if image.source else ""
    return f'<figure class="{kind}">{image_html}<figcaption>{caption}</figcaption></figure>'


def _sheet(sheet: Sheet, address: Address) -> str:
    grid = sheet.grid
    head, *body = grid.cells()
    num_left = len(grid.texts) if grid.numbers else grid.num_left
    columns = zip(*body, strict=True) if body else [()] * len(head)
    are_numbers = [i >= num_left and _has_numbers(column) for i, column in enumerate(columns)]
    kinds = [' class="num"' if is_number else "" for is_number in are_numbers]
    heads = (
        f'<th scope="col"{kind}>{inline(cell.text)}</th>'
        for cell, kind in zip(head, kinds, strict=True)
    )
    rows = (_row(line, cells, kinds, address) for line, cells in zip(grid.lines, body, strict=True))
    caption = escape(sheet.title)
    title = "" if sheet.id else f"<h3>{caption}</h3>"
    wide = " wide" if len(head) > WIDE_COLUMNS else ""
    tall = " tall" if len(body) > TALL_ROWS else ""
    name = f' id="{sheet.id}"' if sheet.id else ""
    texts = "".join(f' data-{form}="{escape(text)}"' for form, text in sheet.texts.items())
    table = f'<table class="sortable copied {sheet.kind}"{name}{texts}>'
    table += f"<caption>{caption}</caption>"
    table += f"<thead><tr>{''.join(heads)}</tr></thead>"
    table += "<tbody>{}</tbody></table>".format("\n".join(rows))
    scroll = f'<div class="scroll{tall}" tabindex="0">{table}</div>'
    return f'<div class="block{wide}">{title}{scroll}{_note(sheet.note)}</div>'


def _row(line: Line, cells: Sequence[Cell], kinds: Sequence[str], address: Address) -> str:
    if cells[0].is_title:
        title = inline(cells[0].text)
        return f'<tr class="group"><th colspan="{len(cells)}">{title}</th></tr>'
    entries = (_cell(cell, kind, address) for cell, kind in zip(cells, kinds, strict=True))
    kind = f' class="{line.kind}"' if line.kind else ""
    words = f' data-words="{escape(line.words)}"' if line.words else ""
    return f"<tr{kind}{words}>{''.join(entries)}</tr>"


def _has_numbers(column: Sequence[Cell]) -> bool:
    """Return whether a column contains numbers, or nothing but their absence."""
    if any(cell.score or _number(cell.text) is not None for cell in column):
        return True
    return all(cell.text in ("", "–", "not run", "failed") for cell in column)


def _cell(cell: Cell, kind: str, address: Address) -> str:
    """Return a cell as HTML; our numbers link to their explanations."""
    text = f"<b>{escape(cell.text)}</b>" if cell.best else inline(cell.text)
    if anchor := address(cell.files):
        text = f'<a class="open" href="{escape(anchor)}">{text}</a>'
    if marks := cell.suffix.strip():
        text = f'{text} <span class="marks">{inline(marks)}</span>'
    value = cell.score.mean if cell.score else _number(cell.text)
    sort = f' data-sort="{value}"' if kind and value is not None else ""
    return f"<td{kind}{sort}>{text}</td>"


def _number(text: str) -> float | None:
    try:
        return float(text.replace("−", "-").partition(" ")[0])
    except ValueError:
        return None


def sheet(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    num_left: int = 1,
    note: str = "",
) -> Sheet:
    """Return a table of plain texts; the first `num_left` columns are left-aligned."""
    safe_rows = [[*map(plain, row[:num_left]), *row[num_left:]] for row in rows]
    return Sheet(title, grid([*map(plain, header)], safe_rows, num_left=num_left), note=note)


def jpeg_address(content: bytes) -> str:
    """Return a JPEG's data URL; empty if invalid or too large."""
    if not content.startswith(JPEG) or len(content) > MAX_BYTES:
        return ""
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
