"""The papers' tables with our rows, as the markdown pages have them."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pages.paper_page import paper_tables, tasks_of
from benchmarks.pages.published import Paper, papers
from benchmarks.pages.published import Table as PublishedTable
from benchmarks.pages.table_rows import Line, PrintedTable
from benchmarks.report_parts.contents import Contents, Details


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a table on the page."""

    text: str
    after: str = ""
    """Footnote marks."""
    best: bool = False
    sort: str = ""
    """Number by which the script sorts; empty for text and for missing numbers."""
    details: str = ""
    """Places of the explanations that the number opens; empty for the papers' numbers."""


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row, or the title of the rows after it."""

    cells: tuple[Cell, ...]
    ours: bool
    title: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One table on the page."""

    heading: str
    columns: tuple[str, ...]
    num_texts: int
    """Number of columns of text; the others are numbers."""
    rows: tuple[TableRow, ...]
    notes: str
    legend: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One published table and our rows for it."""

    paper: str
    number: str
    title: str
    source: str
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]
    num_ours: int
    """Number of our rows."""


def tables_of_papers(contents: Contents, details: Details) -> list[PaperTable]:
    """Return every published table with a column of a task that is built here."""
    return [
        _paper_table(paper, table, contents, details)
        for paper in papers()
        for table in paper.tables
        if table.kind != "settings" and tasks_of(table)
    ]


def _paper_table(
    paper: Paper, published: PublishedTable, contents: Contents, details: Details
) -> PaperTable:
    tables = paper_tables(published, contents.results)
    grids = tuple(_grid(block, details) for block in tables.blocks)
    return PaperTable(
        paper=paper.name,
        number=published.number,
        title=published.title,
        source=f"{paper.title}, {paper.venue}, arXiv:{paper.arxiv}",
        grids=tuple(grid for grid in grids if grid.rows),
        notes=tuple(tables.notes.texts),
        num_ours=sum(row.ours for grid in grids for row in grid.rows),
    )


def _grid(table: PrintedTable, details: Details) -> Grid:
    return Grid(
        heading=table.heading,
        columns=(*table.header, *(heading.label for heading in table.headings)),
        num_texts=len(table.header),
        rows=tuple(rows_of(table, details)),
        notes=table.notes,
        legend=tuple(line.removeprefix("- ") for line in table.legend.splitlines()),
    )


def rows_of(table: PrintedTable, details: Details) -> Sequence[TableRow]:
    """Return the rows of a printed table."""
    best = table.best()
    return [
        TableRow(
            cells=_cells(line, {j for row, j in best if row == i}, details),
            ours=line.ours,
            title=not line.numbers,
        )
        for i, line in enumerate(table.lines)
    ]


def _cells(line: Line, best: set[int], details: Details) -> tuple[Cell, ...]:
    texts = [Cell(text=line.label.removeprefix("→ "))]
    texts += [Cell(text=text) for text in line.attributes]
    numbers = [
        Cell(
            text=number.text,
            after=number.after.strip(),
            best=j in best,
            sort=f"{number.score.mean}" if number.score and number.score.finite else "",
            details=details.of_files(number.files),
        )
        for j, number in enumerate(line.numbers)
    ]
    return (*texts, *numbers)
