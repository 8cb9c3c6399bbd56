"""Page of one published table: the paper's rows in its order, ours below, then the other blocks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from benchmarks.results.numbers import EMPTY, Block, Number, blocks
from benchmarks.results.published import (
    AVERAGE,
    Column,
    Paper,
    Row,
    Table,
    all_tables,
    published_score,
    transfer_tasks,
)
from benchmarks.results.records import Reasons, grouped
from benchmarks.results.tables import (
    RULE,
    Cell,
    Grid,
    Line,
    Notes,
    OurRow,
    Page,
    backbone_lines,
    mark_best,
    our_lines,
    row_label,
)
from benchmarks.results.verdicts import (
    Pair,
    comparison_parts,
    missing_row_lines,
    norm_group_lines,
    rows_of_recipe,
)

MARGINS_ABOVE_RANDOM = {
    **dict.fromkeys(("coco_det", "coco_insseg", "coco_keypoint", "voc0712_det_c4"), ("AP", 3.0)),
    "voc12_seg_fcn": ("mIoU", 10.0),
}
"""Metric and margin in points by task id. A fine-tuned network that is not further above random
weights may have been trained from scratch by mistake."""
MARKS = {True: "✓", False: "", None: "?", "default": "*"}


class PaperTable(NamedTuple):
    """One table of a page, and the texts below it."""

    grid: Grid
    title: str
    """Conditions of rows that are in a table of their own; empty for that with the paper's rows."""
    notes: str
    """Notes that hold for all of our rows."""
    legend: Sequence[str]
    """Meaning of the signs."""
    block: Block

    @property
    def num_ours(self) -> int:
        """Number of our rows."""
        return sum(line.ours for line in self.grid.lines)


class PaperTables(NamedTuple):
    """A published table of results with our rows, as one or more tables of a page."""

    paper: Paper
    table: Table
    shown: Sequence[PaperTable]
    """The table with the paper's rows, then those with our rows that have other conditions."""
    notes: Notes
    """Notes on single numbers and rows."""

    @property
    def name(self) -> str:
        """Name of paper and table, such as "CO2, Table 3"."""
        return f"{self.paper.name}, {self.table.number}"


def papers_tables(numbers: Sequence[Number]) -> list[PaperTables]:
    """Return every published table of results of tasks that are built here, with our rows."""
    tables = []
    for paper, table in all_tables():
        if table.kind != "settings" and table.tasks:
            notes = Notes()
            shown = _tables_with_ours(table, numbers, notes)
            tables.append(PaperTables(paper, table, shown, notes))
    return tables


def paper_page(tables: PaperTables, pairs: Sequence[Pair], command: str) -> Page:
    """Return the page of a table; pairs: those of the table."""
    paper, table, shown, notes = tables
    page = _title(table, paper)
    page.append(
        f"Percent. Rows with → are measured here, all others are the paper's. Made by `{command}`."
    )
    groups = grouped((column.block, column.label) for column in table.columns if column.block)
    if groups:
        listed = "; ".join(f"{title}: {', '.join(labels)}" for title, labels in groups.items())
        page.append(f"Columns: {listed}.")
    page.append(RULE)
    for one in shown:
        page += [f"## {one.title}"] if one.title else []
        page += [one.grid if one.grid.lines else "No row yet.", one.notes]
        page.append("\n".join(f"- {line}" for line in one.legend))
    page += ["## Notes", notes.list()] if notes else []
    ours = [number for one in shown for number in one.block.numbers]
    # on this page, the protocol of a row counts like that of its column
    comparable = [n for n in ours if n.runs and not n.reasons.of_runs.words and not n.version]
    rows = Block(Reasons(), 0, comparable).rows
    page += ["## Against the paper", *comparison_parts(table, pairs, rows)]
    if needed := missing_row_lines(table, rows):
        page += ["## Missing rows (`python -m pretrain RECIPE`)", "\n".join(needed)]
    runs = sorted((number.run for number in ours), key=lambda run: run.identity)
    page += ["## Backbones", *backbone_lines(runs)] if runs else []
    return page


def settings_page(table: Table, paper: Paper, command: str) -> Page:
    """Return the page of a table that prints settings and no result."""
    shown = _paper_table(table, EMPTY, Notes(), printed=True)
    facts = "\n".join(f"- {fact}" for fact in table.facts)
    return [*_title(table, paper), f"Made by `{command}`.", shown.grid, facts]


def _title(table: Table, paper: Paper) -> Page:
    source = f"*{paper.title}*, {paper.venue}, arXiv:{paper.arxiv}."
    return [f"# {paper.name}, {table.number}", f"{table.title}.\n{source}"]


def _tables_with_ours(table: Table, numbers: Iterable[Number], notes: Notes) -> list[PaperTable]:
    """Return the table with the paper's rows and ours, then those with our other rows.

    Our rows are next to the paper's if they have the protocol of their column. If the paper used
    another protocol for the row of the backbone's recipe, they must have that one.
    """
    protocols = dict.fromkeys(table.tasks, table.columns[0].protocol)
    protocols |= {column.task: column.protocol for column in table.columns}
    of_rows = {protocol for row in table.rows for protocol in row.own_protocols}

    def belongs(number: Number) -> bool:
        """Return whether it has the paper's protocol of the task, a variant, or that of a row."""
        protocol = protocols.get(number.task)
        return protocol is not None and (
            number.reading == protocol
            or number.reading.startswith(f"{protocol}-")
            or number.reading in of_rows
        )

    def unexpected_protocol(number: Number) -> str:
        reading, protocol = number.reading, protocols[number.task]
        rows = [r for r in rows_of_recipe(table, number.run) if r.task in ("", number.task)]
        own = {row.protocol_for(number.task, protocol) for row in rows} - {""}
        if own and reading not in own and reading in {protocol, *of_rows}:
            return f"protocol {reading} instead of {', '.join(sorted(own))}"
        return "" if reading == protocol else f"protocol {reading}"

    all_blocks = blocks(
        number._replace(reasons=number.reasons._replace(protocol=unexpected_protocol(number)))
        for number in numbers
        if belongs(number)
    )
    comparable = next((block for block in all_blocks if block.comparable), EMPTY)
    shown = [_paper_table(table, comparable, notes, printed=True)]
    others = [
        (block, _rows_with_protocol(table, block)) for block in all_blocks if not block.comparable
    ]
    for block, rows in sorted(others, key=lambda entry: not entry[1]):
        title = f"{block.heading}: not comparable with the rows above"
        if rows:
            title = f"{block.heading}: the paper's protocol for "
            title += ", ".join(row.label for row in rows)
        elif not table.rows:
            title = block.heading
        own = replace(table, rows=rows or table.rows)
        shown.append(_paper_table(own, block, notes, printed=bool(rows), title=title))
    return shown


def _rows_with_protocol(table: Table, block: Block) -> tuple[Row, ...]:
    """Return the rows for which the paper used the block's protocol.

    There are none if the block has any other reason not to be comparable.
    """
    protocol = block.reasons.protocol
    if block.version or block.reasons.of_runs.words:
        return ()
    return tuple(
        row for row in table.rows if protocol in {f"protocol {name}" for name in row.own_protocols}
    )


def _sections(table: Table) -> list[tuple[str, str, tuple[Row, ...]]]:
    """Return title, task and printed rows of each group. Our rows go where a task is named.

    If no row names its task, ours are in a group of their own, the last.
    """
    groups = [
        (title, task, tuple(rows))
        for (title, task), rows in groupby(table.rows, lambda row: (row.group, row.task))
    ]
    if any(task for _, task, _ in groups):
        return groups
    return [*groups, ("measured here" if any(title for title, *_ in groups) else "", "", ())]


def _paper_table(
    table: Table, block: Block, notes: Notes, *, printed: bool, title: str = ""
) -> PaperTable:
    """Return a table with our rows of a block, and on request with the paper's."""
    decimals = [_decimals(table, column) for column in table.columns]
    sections: list[tuple[str, list[Line], list[OurRow]]] = []
    for group, task, rows in _sections(table):
        theirs = [_printed_line(table, row, task, decimals) for row in rows] if printed else []
        is_for_ours = task or not rows
        ours = [_our_row(table, block, row, task) for row in block.rows] if is_for_ours else []
        sections.append((group, theirs, ours))
    made, of_all = our_lines([row for *_, ours in sections for row in ours], notes, decimals)
    lines: list[Line] = []
    for group, theirs, ours in sections:
        own = [*theirs, *(made.pop(0) for _ in ours)]
        lines += [Line(words=[group])] if group and own else []
        lines += own
    mark_best(lines, table.columns)
    measured = any(number.runs for number in block.numbers)
    notes_of_all = "; ".join([f"protocol {block.protocols(block.columns)}", *of_all])
    return PaperTable(
        grid=Grid(
            words=["method", *table.attributes.values()],
            numbers=[column.label for column in table.columns],
            lines=lines,
        ),
        title=title,
        notes=f"All → rows: {notes_of_all}." if lines and measured else "",
        legend=[*_legend(table, block, printed=not title)],
        block=block,
    )


def _our_row(table: Table, block: Block, row: Number, section_task: str) -> OurRow:
    facts = {"arch": row.run.arch, "epochs": row.run.epochs}
    return OurRow(
        label="→ " + row_label(row, block.rows),
        numbers=[
            _checked_number(table, block, row, column, section_task) for column in table.columns
        ],
        words=[facts.get(key, "") for key in table.attributes],
        scope=section_task,
    )


def _checked_number(
    table: Table, block: Block, row: Number, column: Column, section_task: str
) -> Number:
    """Return our number, with a doubt if it is hardly above that of random weights."""
    number = _number(block, row, column, section_task)
    metric, margin = MARGINS_ABOVE_RANDOM.get(section_task or column.task, ("", 0.0))
    if number.score is None or not block.comparable or row.run.is_untrained:
        return number
    if metric != column.metric:
        return number
    random = [printed.values.get(column.key) for printed in table.rows if printed.role == "random"]
    untrained = (other for other in block.rows if other.run.is_untrained)
    ours = [_number(block, other, column, section_task).score for other in untrained]
    random += [score.mean for score in ours if score]
    known = next((value for value in random if value is not None), math.nan)
    if not number.score.mean - known <= margin:  # NaN is neither above nor below
        return number
    doubt = f"not more than {margin:g} {metric} above random weights ({known:.1f})"
    doubts = (*number.failures, f"{doubt}: weights may not be loaded")
    return number._replace(failures=doubts)


def _number(block: Block, row: Number, column: Column, section_task: str) -> Number:
    task = section_task or column.task
    members = transfer_tasks() if task == AVERAGE else (task,)
    reading = next((name for member, name in block.columns if member in members), "")
    metric = "mean" if task == AVERAGE else column.metric
    return block.number(row, (task, reading), metric)


def _printed_line(table: Table, row: Row, task: str, decimals: Sequence[int]) -> Line:
    notes = [row.note] if row.note else []
    notes += [f"protocol {row.protocol}"] if row.protocol else []
    label = f"{row.label} ({'; '.join(notes)})" if notes else row.label
    return Line(
        words=[label, *(_attribute(row, key) for key in table.attributes)],
        numbers=[
            _printed_number(row, column, digits)
            for column, digits in zip(table.columns, decimals, strict=True)
        ],
        scope=task,
    )


def _attribute(row: Row, key: str) -> str:
    if key in row.marks:
        mark = MARKS[row.marks[key]]
        return f"({mark})" if row.marks_inferred and row.marks[key] is True else mark
    value = row.attrs.get(key)
    return "–" if value is None else str(value)


def _printed_number(row: Row, column: Column, decimals: int) -> Cell:
    value = row.values.get(column.key)
    if value is None:
        return Cell(text="–")
    interval = row.ci.get(column.key)
    after = f" ± {interval:.1f}" if interval is not None else ""
    after += row.markers.get(column.key, "")
    if column.key in row.bracketed:
        mark = row.markers.get("bracketed", "")
        after += f" ({row.bracketed[column.key]:.{decimals}f}{mark})"
    score = published_score(row, column, value)
    return Cell(text=f"{value:.{decimals}f}", after=after, score=score)


def _decimals(table: Table, column: Column) -> int:
    """Return the number of decimals that the paper prints, 1 if it prints no number."""
    values = [row.values.get(column.key) for row in table.rows]
    printed = [repr(v).partition(".")[2] for v in values if v is not None]
    return max((len(digits) for digits in printed), default=1)


def _legend(table: Table, block: Block, *, printed: bool) -> Iterator[str]:
    """Yield the meaning of the signs in a table."""
    means = [number.runs for number in block.numbers if number.task != AVERAGE]
    if any(len(runs) > 1 for runs in means):
        yield "± of → rows: standard deviation over the runs."
    if any(len(runs) == 1 and runs[0].details.get("interval95") for runs in means):
        yield "± of → rows with one run: 95 % interval over its trials."
    if printed:
        if any(v is None for row in table.rows for v in row.values.values()):
            yield "–: not reported by the paper."
        yield from table.facts
        yield from norm_group_lines((*table.rows, *table.points))
