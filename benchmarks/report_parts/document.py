"""Texts, tables, charts and images as HTML; every value is escaped."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from markupsafe import Markup, escape

from benchmarks.results.tables import Cell, Grid, Line, plain
from transfer.galleries.tile import MAX_BYTES

Address = Callable[[Iterable[str]], str]
"""Function from records to the address on the page of everything behind them."""
JPEG = b"\xff\xd8\xff"
WIDE_COLUMNS, TALL_ROWS = 4, 25
"""Columns and rows of tables that are not shown as wide or as scrolling."""


class Sheet(NamedTuple):
    """A table with a title, whose rows can be sorted and copied."""

    title: str
    grid: Grid
    note: str = ""
    kind: str = ""
    """Class of the table."""
    id: str = ""
    """Identifier of a table that is alone in its section, so that its title is not repeated."""
    families: Sequence[str] = ()
    """Hidden words by which each row can also be found."""
    texts: Mapping[str, str] = MappingProxyType({})
    """The whole table by format, to be copied; otherwise the page's script writes what is shown."""


class Fold(NamedTuple):
    """Parts that are hidden until the reader opens them."""

    name: str
    text: str
    num: str
    """How much it contains, in words."""
    parts: Sequence["Part"]
    kind: str = "paper-table"
    is_open: bool = False


class Terms(NamedTuple):
    """Labels with texts."""

    lines: Sequence[tuple[str, str]]


class Links(NamedTuple):
    """A line of links to other files of the results."""

    name: str
    links: Sequence[tuple[str, str, str]]
    """Text, relative address, and what is there."""


class Chart(NamedTuple):
    """A chart with its caption and legend."""

    title: str
    svg: str
    legend: Sequence[tuple[str, str, str]]
    """Sign, color and name of each line."""
    note: str = ""


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


Part = str | Sheet | Fold | Terms | Links | Chart | Gallery


def html(part: Part, address: Address) -> Markup:
    """Return one part of a section."""
    return Markup(_html(part, address))


def _html(part: Part, address: Address) -> str:
    """Return one part as HTML, with every value escaped."""
    if isinstance(part, str):
        return "\n".join(_text(block) for block in part.split("\n\n") if block)
    if isinstance(part, Sheet):
        return _sheet(part, address)
    if isinstance(part, Terms):
        lines = (f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in part.lines)
        return f"<dl>{''.join(lines)}</dl>"
    if isinstance(part, Links):
        links = (
            f'<a href="{escape(address)}" title="{escape(title)}">{escape(text)}</a>'
            for text, address, title in part.links
        )
        return f'<p class="below">{escape(part.name)}: {", ".join(links)}</p>'
    if isinstance(part, Chart):
        legend = "".join(
            f'<li><span aria-hidden="true" style="color:{color}">{sign}</span> {escape(name)}</li>'
            for sign, color, name in part.legend
        )
        caption = f"<figcaption>{escape(part.title)}</figcaption>{part.svg}"
        return f'<figure>{caption}<ul class="legend">{legend}</ul>{_below(part.note)}</figure>'
    if isinstance(part, Gallery):
        title = f"<h3>{escape(part.title)}</h3>" if part.title else ""
        images = "".join(map(_image, part.images))
        gallery = f'<div class="{part.kind}">{images}</div>'
        return f'<div class="wide">{title}{_below(part.note)}{gallery}</div>'
    texts = (("name", part.name), ("what", part.text), ("count", part.num))
    spans = "".join(f'<span class="{kind}">{escape(text)}</span>' for kind, text in texts)
    parts = "\n".join(_html(one, address) for one in part.parts)
    start = f'<details class="{part.kind}"{" open" if part.is_open else ""}>'
    return f'{start}<summary>{spans}</summary><div class="figures">{parts}</div></details>'


def inline(text: str) -> Markup:
    """Return markdown of one line with its code and bold, and without its escapes."""
    if not re.search(r"[\\`*]", text):
        return escape(text)

    def element(match: re.Match[str]) -> str:
        sign, code, bold = match.groups()
        if sign:
            return escape(sign)
        return f"<code>{escape(code)}</code>" if code else f"<b>{escape(bold)}</b>"

    pieces, end = [], 0
    for match in re.finditer(r"\\([!-/:-@\[-`{-~])|`([^`]+)`|\*\*(.+?)\*\*", text):
        pieces += [escape(text[end : match.start()]), element(match)]
        end = match.end()
    return Markup("".join([*pieces, escape(text[end:])]))


def _text(block: str) -> str:
    """Return a paragraph, a heading or a list."""
    if block.startswith("#"):
        return f"<h3>{inline(block.lstrip('# '))}</h3>"
    items = re.findall(r"^(?:- |\d+\. )(.*)$", block, flags=re.MULTILINE)
    if len(items) < block.count("\n") + 1:
        return _below(block)
    kind = "ul" if block.startswith("-") else "ol"
    lines = "".join(f"<li>{inline(item)}</li>" for item in items)
    return f'<{kind} class="below">{lines}</{kind}>'


def _below(note: str) -> str:
    return f'<p class="below">{inline(note)}</p>' if note else ""


def _image(image: Image) -> str:
    kind = escape(f"tile {image.group.replace(' ', '-')}".strip())
    caption, name = escape(image.caption), escape(image.name)
    shown = f'<img src="{image.source}" alt="{caption}" title="{name}" decoding="async">'
    shown = shown if image.source else ""
    return f'<figure class="{kind}">{shown}<figcaption>{caption}</figcaption></figure>'


def _sheet(sheet: Sheet, address: Address) -> str:
    grid = sheet.grid
    head, *body = grid.cells()
    left = len(grid.words) if grid.numbers else grid.left
    columns = zip(*body, strict=True) if body else [()] * len(head)
    are_numbers = [i >= left and _has_numbers(column) for i, column in enumerate(columns)]
    kinds = [' class="num"' if is_number else "" for is_number in are_numbers]
    heads = (
        f'<th scope="col"{kind}>{inline(cell.text)}</th>'
        for cell, kind in zip(head, kinds, strict=True)
    )
    families = sheet.families or [""] * len(body)
    rows = (
        _row(line, cells, kinds, family, address)
        for line, cells, family in zip(grid.lines, body, families, strict=True)
    )
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
    return f'<div class="block{wide}">{title}{scroll}{_below(sheet.note)}</div>'


def _row(
    line: Line, cells: Sequence[Cell], kinds: Sequence[str], family: str, address: Address
) -> str:
    if cells[0].is_title:
        title = inline(cells[0].text)
        return f'<tr class="group"><th colspan="{len(cells)}">{title}</th></tr>'
    entries = [_cell(cell, kind, address) for cell, kind in zip(cells, kinds, strict=True)]
    if family:
        entries[1] = entries[1].replace("<td", f'<td data-words="{escape(family)}"', 1)
    kind = f' class="{line.kind}"' if line.kind else ""
    return f"<tr{kind}>{''.join(entries)}</tr>"


def _has_numbers(column: Sequence[Cell]) -> bool:
    """Return whether a column contains numbers, or nothing but their absence."""
    if any(cell.score or _number(cell.text) is not None for cell in column):
        return True
    return all(cell.text in ("", "–", "not run", "failed") for cell in column)


def _cell(cell: Cell, kind: str, address: Address) -> str:
    """Return a cell as HTML; a number of ours opens everything behind it."""
    text = f"<b>{escape(cell.text)}</b>" if cell.best else inline(cell.text)
    if where := address(cell.files):
        text = f'<a class="open" href="{escape(where)}">{text}</a>'
    if marks := cell.after.strip():
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
    left: int = 1,
    note: str = "",
) -> Sheet:
    """Return a table of texts as they are; the first `left` columns are left-aligned."""
    lines = [
        Line(words=[plain(text) if i < left else text for i, text in enumerate(row)])
        for row in rows
    ]
    return Sheet(title, Grid(words=[plain(text) for text in header], lines=lines, left=left), note)


def jpeg_address(content: bytes) -> str:
    """Return the address that contains a JPEG; empty for other content and for large files."""
    if not content.startswith(JPEG) or len(content) > MAX_BYTES:
        return ""
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
