"""Page of a published table: the paper's rows and ours.

The first table has the paper's rows in their order and our comparable rows. Other blocks follow.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, product
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
from benchmarks.results.records import Reasons
from benchmarks.results.tables import (
    RULE,
    Cell,
    Grid,
    Line,
    Notes,
    Page,
    backbone_lines,
    mark_best,
    mark_notes,
    our_cell,
    plain,
    row_label,
)
from benchmarks.results.verdicts import (
    Pair,
    comparison_parts,
    missing_row_lines,
    norm_group_lines,
    rows_of_recipe,
)
from benchmarks.words import grouped

MARGINS_ABOVE_RANDOM = {
    **dict.fromkeys(("coco_det", "coco_insseg", "coco_keypoint", "voc0712_det_c4"), ("AP", 3.0)),
    "voc12_seg_fcn": ("mIoU", 10.0),
}
"""Metric and margin in points by task id.

A fine-tuned network that does not exceed random weights by this margin may have been trained from
scratch by mistake.
"""
MARKS = {True: "✓", False: "", None: "?", "default": "*"}


class PaperTable(NamedTuple):
    """One table of a page, and the texts below it."""

    grid: Grid
    title: str
    """Conditions of the rows; empty for the paper's conditions."""
    notes: str
    """Notes that apply to all of our rows."""
    legend: Sequence[str]
    """Meaning of the signs."""
    block: Block


class PaperTables(NamedTuple):
    """A published table of results with our rows."""

    paper: Paper
    table: Table
    tables: Sequence[PaperTable]
    """The table with the paper's rows, then tables of our other rows."""
    notes: Notes
    """Notes on single numbers and rows."""

    @property
    def name(self) -> str:
        """Name of paper and table, such as "CO2, Table 3"."""
        return f"{self.paper.name}, {self.table.number}"


def papers_tables(numbers: Sequence[Number]) -> list[PaperTables]:
    """Return every published table of implemented tasks, with our rows."""
    tables = []
    for paper, table in all_tables():
        if table.kind != "settings" and table.tasks:
            notes = Notes()
            tables_with_ours = _tables_with_ours(table, numbers, notes)
            tables.append(PaperTables(paper, table, tables_with_ours, notes))
    return tables


def paper_page(tables: PaperTables, pairs: Sequence[Pair], command: str) -> Page:
    """Return the page of a published table.

    pairs: pairs of this table.
    """
    paper, table, paper_tables, notes = tables
    page = _title(table, paper)
    page.append(
        f"Percent. Rows with → are our measurements, others are the paper's. Made by `{command}`."
    )
    groups = grouped((column.block, column.label) for column in table.columns if column.block)
    if groups:
        listed = "; ".join(f"{title}: {', '.join(labels)}" for title, labels in groups.items())
        page.append(f"Columns: {listed}.")
    page.append(RULE)
    for paper_table in paper_tables:
        page += [f"## {paper_table.title}"] if paper_table.title else []
        page += [paper_table.grid if paper_table.grid.lines else "No row yet.", paper_table.notes]
        page.append("\n".join(f"- {line}" for line in paper_table.legend))
    page += ["## Notes", notes.list()] if notes else []
    ours = [number for paper_table in paper_tables for number in paper_table.block.numbers]
    # on this page, a row's protocol is as valid as its column's
    rows = Block(Reasons(), [n for n in ours if n.runs and n.reasons.of_runs.comparable]).rows
    page += ["## Differences from the paper", *comparison_parts(table, pairs, rows)]
    if missing := missing_row_lines(table, rows):
        page += ["## Missing rows (`python -m pretrain RECIPE`)", "\n".join(missing)]
    by_name = sorted(ours, key=lambda number: number.backbone.identity)
    page += ["## Backbones", *backbone_lines(by_name)] if ours else []
    return page


def settings_page(table: Table, paper: Paper, command: str) -> Page:
    """Return the page of a table that contains settings instead of results."""
    paper_table = _paper_table(table, EMPTY, Notes(), printed=True)
    facts_list = "\n".join(f"- {fact}" for fact in table.facts)
    return [*_title(table, paper), f"Made by `{command}`.", paper_table.grid, facts_list]


def _title(table: Table, paper: Paper) -> Page:
    source = f"*{paper.title}*, {paper.venue}, arXiv:{paper.arxiv}."
    return [f"# {paper.name}, {table.number}", f"{table.title}.\n{source}"]


def _tables_with_ours(table: Table, numbers: Iterable[Number], notes: Notes) -> list[PaperTable]:
    """Return the table with the paper's rows, and our other rows.

    Our rows are next to the paper's if they have the protocol of their column. If the paper used
    another protocol for the row of the backbone's recipe, they must have that protocol.
    """
    protocols = {task: [table.columns[0].protocol] for task in table.tasks}
    protocols |= grouped((column.task, column.protocol) for column in table.columns)
    row_protocols = {protocol for row in table.rows for protocol in row.own_protocols}

    def protocol_of_column(number: Number) -> str | None:
        """Return the protocol of the task's column; the number's own, if a column has it."""
        names = protocols.get(number.task, [])
        return number.protocol_name if number.protocol_name in names else next(iter(names), None)

    def belongs(number: Number) -> bool:
        """Return whether the table has this protocol or a variant."""
        protocol, name = protocol_of_column(number), number.protocol_name
        if protocol is None:
            return False
        return name == protocol or name in row_protocols or name.startswith(f"{protocol}-")

    def unexpected_protocol(number: Number) -> str:
        name, protocol = number.protocol_name, protocol_of_column(number) or ""
        rows = [r for r in rows_of_recipe(table, number.backbone) if r.task in ("", number.task)]
        expected = {row.protocol_for(number.task, protocol) for row in rows} - {""}
        if expected and name not in expected and name in {protocol, *row_protocols}:
            return f"protocol {name} instead of {', '.join(sorted(expected))}"
        return "" if name == protocol else f"protocol {name}"

    all_blocks = blocks(
        number._replace(reasons=number.reasons._replace(protocol=unexpected_protocol(number)))
        for number in numbers
        if belongs(number)
    )
    comparable = next((block for block in all_blocks if block.reasons.comparable), EMPTY)
    paper_tables = [_paper_table(table, comparable, notes, printed=True)]
    other_tables = []
    for block in (block for block in all_blocks if block is not comparable):
        title, protocol = block.reasons.heading, block.reasons.protocol.removeprefix("protocol ")
        # rows for which the paper used this protocol
        is_only_reason = block.reasons.of_runs.comparable
        rows = tuple(r for r in table.rows if is_only_reason and protocol in r.own_protocols)
        if rows:
            title += f": the paper's protocol for {', '.join(row.label for row in rows)}"
        elif table.rows:
            title += ": not comparable with the rows above"
        other_tables.append((replace(table, rows=rows or table.rows), block, bool(rows), title))
    for with_rows, block, printed, title in sorted(other_tables, key=lambda entry: not entry[2]):
        paper_tables.append(_paper_table(with_rows, block, notes, printed=printed, title=title))
    return paper_tables


def _sections(table: Table) -> list[tuple[str, str, tuple[Row, ...]]]:
    """Return title, task and printed rows of each group.

    Our rows are in the groups that name a task. If no row names its task, they are in a separate
    last group.
    """
    groups = [
        (title, task, tuple(rows))
        for (title, task), rows in groupby(table.rows, lambda row: (row.group, row.task))
    ]
    if any(task for _, task, _ in groups):
        return groups
    return [*groups, ("our measurements" if any(title for title, *_ in groups) else "", "", ())]


def _paper_table(
    table: Table, block: Block, notes: Notes, *, printed: bool, title: str = ""
) -> PaperTable:
    """Return a table of our rows of a block.

    printed: include the paper's rows.
    """
    decimals = [_decimals(table, column) for column in table.columns]
    lines: list[Line] = []
    for group, task, rows in _sections(table):
        printed_rows = rows if printed else ()
        group_lines = [_printed_line(table, row, task, decimals) for row in printed_rows]
        if task or not rows:
            group_lines += [_our_line(table, block, row, task, decimals) for row in block.rows]
        lines += [Line(texts=[group])] if group and group_lines else []
        lines += group_lines
    shared_notes = mark_notes([line for line in lines if line.kind == "ours"], notes)
    scopes = grouped((line.scope, line) for line in lines if line.numbers)
    for (scope, scope_lines), (i, column) in product(scopes.items(), enumerate(table.columns)):
        mark_best(
            [line.numbers[i] for line in scope_lines],
            scope or column.task,
            higher_is_better=column.higher_is_better is not False,
        )
    measured = any(number.runs for number in block.numbers)
    notes_text = "; ".join([f"protocol {block.protocols(block.columns)}", *shared_notes])
    return PaperTable(
        grid=Grid(
            texts=["method", *table.attributes.values()],
            numbers=[column.label for column in table.columns],
            lines=lines,
        ),
        title=title,
        notes=f"All → rows: {notes_text}." if lines and measured else "",
        legend=[*_legend(table, block, printed=not title)],
        block=block,
    )


def _our_line(
    table: Table, block: Block, row: Number, section_task: str, decimals: Sequence[int]
) -> Line:
    attributes = {"arch": row.backbone.arch, "epochs": row.backbone.epochs}
    return Line(
        texts=[
            plain(f"→ {row_label(row, block.rows)}"),
            *(attributes.get(key, "") for key in table.attributes),
        ],
        numbers=[
            our_cell(_checked_number(table, block, row, column, section_task), digits)
            for column, digits in zip(table.columns, decimals, strict=True)
        ],
        scope=section_task,
        kind="ours",
    )


def _checked_number(
    table: Table, block: Block, row: Number, column: Column, section_task: str
) -> Number:
    """Return our number, with a warning if close to random weights."""
    number = _our_number(table, block, row, column, section_task)
    metric, margin = MARGINS_ABOVE_RANDOM.get(section_task or column.task, ("", 0.0))
    is_trained = block.reasons.comparable and not row.backbone.is_random
    if number.score is None or metric != column.metric or not is_trained:
        return number
    untrained = [other for other in block.rows if other.backbone.is_untrained]
    ours = [_our_number(table, block, other, column, section_task).score for other in untrained]
    random = [printed.values.get(column.key) for printed in table.rows if printed.role == "random"]
    random += [score.mean for score in ours if score]
    random_score = next((value for value in random if value is not None), math.nan)
    if not number.score.mean - random_score <= margin:  # NaN is neither above nor below
        return number
    warning = f"not more than {margin:g} {metric} above random weights ({random_score:.1f})"
    warnings = (*number.failures, f"{warning}: weights may not be loaded")
    return number._replace(failures=warnings)


def _our_number(
    table: Table, block: Block, row: Number, column: Column, section_task: str
) -> Number:
    task = section_task or column.task
    members = transfer_tasks() if task == AVERAGE else (task,)
    name = next((name for member, name in block.columns if member in members), "")
    if len({other.protocol for other in table.columns if other.task == column.task}) > 1:
        name = column.protocol
    metric = "mean" if task == AVERAGE else column.metric
    return block.number(row, (task, name), metric)


def _printed_line(table: Table, row: Row, task: str, decimals: Sequence[int]) -> Line:
    notes = [row.note] if row.note else []
    notes += [f"protocol {row.protocol}"] if row.protocol else []
    label = f"{row.label} ({'; '.join(notes)})" if notes else row.label
    return Line(
        texts=[label, *(_attribute(row, key) for key in table.attributes)],
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
    suffix = f" ± {interval:.1f}" if interval is not None else ""
    suffix += row.markers.get(column.key, "")
    if column.key in row.bracketed:
        mark = row.markers.get("bracketed", "")
        suffix += f" ({row.bracketed[column.key]:.{decimals}f}{mark})"
    score = published_score(row, column, value)
    return Cell(text=f"{value:.{decimals}f}", suffix=suffix, score=score)


def _decimals(table: Table, column: Column) -> int:
    """Return the number of decimals that the paper prints, or 1."""
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
