"""Texts, tables, charts and pictures as HTML; every value is escaped."""

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from benchmarks.numbers.tables import Cell, Grid, Line, plain
from transfer.galleries.tile import MOST_BYTES

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


class Chart(NamedTuple):
    """A chart with its caption and legend."""

    title: str
    svg: str
    legend: Sequence[tuple[str, str, str]]
    """Sign, color and name of each line."""
    note: str = ""


class Picture(NamedTuple):
    """One picture with its caption."""

    source: str
    """Address that contains the whole image."""
    caption: str
    group: str = ""
    name: str = ""
    """File of the image."""


class Gallery(NamedTuple):
    """Pictures of one record, or of pre-training, or the papers' figures."""

    title: str
    pictures: Sequence[Picture]
    note: str = ""
    kind: str = "gallery small"
    """Class of the element; "neighbors": a query, then its nearest images."""


Part = str | Sheet | Fold | Terms | Chart | Gallery


def html(part: Part, address: Address) -> Markup:
    """Return one part of a section."""
    if isinstance(part, str):
        return Markup("\n").join(_text(block) for block in part.split("\n\n") if block)
    if isinstance(part, Sheet):
        return _sheet(part, address)
    if isinstance(part, Terms):
        lines = (Markup("<dt>{}</dt><dd>{}</dd>").format(*line) for line in part.lines)
        return Markup("<dl>{}</dl>").format(Markup("").join(lines))
    if isinstance(part, Chart):
        return Markup(
            '<figure><figcaption>{}</figcaption>{}<ul class="legend">{}</ul>{}</figure>'
        ).format(
            part.title,
            Markup(part.svg),
            Markup("").join(
                Markup('<li><span aria-hidden="true" style="color:{}">{}</span> {}</li>').format(
                    color, sign, name
                )
                for sign, color, name in part.legend
            ),
            _below(part.note),
        )
    if isinstance(part, Gallery):
        title = Markup("<h3>{}</h3>").format(part.title) if part.title else ""
        pictures = Markup("").join(map(_picture, part.pictures))
        return Markup('<div class="wide">{}{}<div class="{}">{}</div></div>').format(
            title, _below(part.note), part.kind, pictures
        )
    return Markup(
        '<details class="{}"{}><summary><span class="name">{}</span><span class="what">{}</span>'
        '<span class="count">{}</span></summary><div class="figures">{}</div></details>'
    ).format(
        part.kind,
        Markup(" open") if part.is_open else "",
        part.name,
        part.text,
        part.num,
        Markup("\n").join(html(one, address) for one in part.parts),
    )


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


def _text(block: str) -> Markup:
    """Return a paragraph, a heading or a list."""
    if block.startswith("#"):
        return Markup("<h3>{}</h3>").format(inline(block.lstrip("# ")))
    items = re.findall(r"^(?:- |\d+\. )(.*)$", block, flags=re.MULTILINE)
    if len(items) < block.count("\n") + 1:
        return Markup('<p class="below">{}</p>').format(inline(block))
    kind = "ul" if block.startswith("-") else "ol"
    lines = Markup("").join(Markup("<li>{}</li>").format(inline(item)) for item in items)
    return Markup('<{0} class="below">{1}</{0}>').format(Markup(kind), lines)


def _below(note: str) -> Markup:
    return Markup('<p class="below">{}</p>').format(inline(note)) if note else Markup("")


def _picture(picture: Picture) -> Markup:
    kind = f"tile {picture.group.replace(' ', '-')}".strip()
    image = Markup('<img src="{}" alt="{}" title="{}" decoding="async">').format(
        picture.source, picture.caption, picture.name
    )
    return Markup('<figure class="{}">{}<figcaption>{}</figcaption></figure>').format(
        kind, image if picture.source else "", picture.caption
    )


def _sheet(sheet: Sheet, address: Address) -> Markup:
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
    return Markup(
        '<div class="block{}">{}<div class="scroll{}" tabindex="0">'
        '<table class="sortable copied {}"{}><caption>{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>{}</div>"
    ).format(
        " wide" if len(head) > WIDE_COLUMNS else "",
        Markup("<h3>{}</h3>").format(sheet.title) if not sheet.id else "",
        " tall" if len(body) > TALL_ROWS else "",
        sheet.kind,
        Markup(' id="{}"').format(sheet.id) if sheet.id else "",
        sheet.title,
        Markup("".join(heads)),
        Markup("\n".join(rows)),
        _below(sheet.note),
    )


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
    if not content.startswith(JPEG) or len(content) > MOST_BYTES:
        return ""
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}"
