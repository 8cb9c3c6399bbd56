"""Page of one published table: the paper's rows in its order, ours below, then the other blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from benchmarks.pages.against import comparison_lines, missing_row_lines
from benchmarks.pages.blocks import NO_ROWS, Block, sort_into_blocks
from benchmarks.pages.entries import Score, TableEntry, table_entry
from benchmarks.pages.markdown import Notes
from benchmarks.pages.matching import rows_of_recipe
from benchmarks.pages.published import (
    AVERAGE,
    ELSEWHERE,
    Column,
    Mark,
    Paper,
    Row,
    Table,
    transfer_tasks,
)
from benchmarks.pages.reasons import (
    ProtocolCheck,
    Reasons,
    without_version,
)
from benchmarks.pages.records import Failure, Model, Result, Results
from benchmarks.pages.table_rows import (
    Heading,
    Line,
    PrintedNumber,
    PrintedTable,
    TableNotes,
    backbone_description,
    backbone_line,
    backbones_of,
    declaration_notes,
    markdown_table,
    row_label,
)
from benchmarks.pages.verdict import low_score_warning, noise_rule

MARKS = {True: "✓", False: "", None: "?", "default": "*"}


class Section(NamedTuple):
    """Consecutive rows of one group."""

    title: str
    task: str
    """Task of the rows; empty where the columns name their tasks."""
    rows: tuple[Row, ...]

    @property
    def ours(self) -> bool:
        """Return whether our rows are added."""
        return bool(self.task) or not self.rows


def tasks_of(published: Table) -> set[str]:
    """Return the ids of the tasks in the table; the average counts as its twelve members."""
    named = {column.task for column in published.columns} | {row.task for row in published.rows}
    return (named - {"", AVERAGE}) | (set(transfer_tasks()) if AVERAGE in named else set())


@dataclass(frozen=True, kw_only=True)
class PaperTables:
    """Tables of one page, and the notes below them."""

    blocks: tuple[PrintedTable, ...]
    """The table with the paper's rows first."""
    notes: Notes
    done: tuple[Result, ...]
    """All results that the page shows."""
    backbones: tuple[Model, ...]
    """Each backbone of the page once."""


def paper_page(published: Table, paper: Paper, results: Results, command: str) -> str:
    """Return the page."""
    tables = paper_tables(published, results)
    parts = [_page_head(published, paper, command)]
    for block in tables.blocks:
        parts += [f"## {block.heading}"] if block.heading else []
        parts += [markdown_table(block)] if block.lines else ["No row yet."]
        parts += [block.notes, block.legend]
    if tables.notes.lines():
        parts += ["## Notes", "\n".join(tables.notes.lines())]
    parts += ["## Against the paper", "\n".join(comparison_lines(published, tables.done))]
    needed = missing_row_lines(published, tables.done)
    if needed:
        parts += ["## Missing rows (`python -m pretrain RECIPE`)", "\n".join(needed)]
    if tables.backbones:
        parts += ["## Backbones", "\n".join(map(backbone_description, tables.backbones))]
        parts += declaration_notes(tables.backbones)
    return "\n\n".join(part for part in parts if part) + "\n"


def settings_page(published: Table, paper: Paper, command: str) -> str:
    """Return the page of a table that prints settings and no result."""
    shown = _block(published, NO_ROWS, Notes(), printed=True)
    facts = "\n".join(f"- {fact}" for fact in published.facts)
    parts = [*_title(published, paper), f"Made by `{command}`.", markdown_table(shown), facts]
    return "\n\n".join(parts) + "\n"


def paper_tables(published: Table, results: Results) -> PaperTables:
    """Return the paper's rows with ours, then our rows that stand apart, block by block."""
    readings = _protocol_by_task(published)
    of_rows = {name for row in published.rows for name in _protocols_of(row)}
    done = [r for r in results.done if _has_protocol_of_page(r, readings, of_rows)]
    failed = [f for f in results.failed if _has_protocol_of_page(f, readings, of_rows)]
    found = sort_into_blocks(done, failed, _protocol_check(published, readings, of_rows))
    comparable = next((b for b in found if b.comparable and not b.version), NO_ROWS)
    others = [b for b in found if b is not comparable]
    others.sort(key=lambda block: not _rows_with_protocol(published, block))
    notes = Notes()
    blocks = [_block(published, comparable, notes, printed=True)]
    for block in others:
        rows = _rows_with_protocol(published, block)
        beside = ": not comparable with the rows above" if published.rows else ""
        if rows:
            beside = f": the paper's protocol for {', '.join(row.label for row in rows)}"
        shown = replace(published, rows=rows or published.rows)
        one = _block(shown, block, notes, printed=bool(rows))
        legend = _legend(published, block, printed=False)
        blocks.append(replace(one, heading=f"{block.heading}{beside}", legend=legend))
    return PaperTables(
        blocks=tuple(blocks),
        notes=notes,
        done=tuple(done),
        backbones=tuple(backbones_of(model for block in found for model in block.models)),
    )


def _protocol_by_task(published: Table) -> dict[str, str]:
    """Return the protocol that the columns ask for, by task."""
    protocol = published.columns[0].protocol
    named = {column.task: column.protocol for column in published.columns}
    return {task: named.get(task, protocol) for task in tasks_of(published)}


def _protocol_check(published: Table, readings: dict[str, str], of_rows: set[str]) -> ProtocolCheck:
    """Return the function that names protocols of results that may not stand beside printed rows.

    A result may stand there if it has the protocol of its column. If the paper used another
    protocol for the row of the backbone's recipe, the result must have that one.
    """

    def check(model: Model, task: str, name: str) -> str:
        reading = readings[task]
        rows = [r for r in rows_of_recipe(published, model) if r.task in ("", task)]
        own = {row.protocol_for(task, reading) for row in rows} - {""}
        if own and name not in own and name in {reading, *of_rows}:
            return f"protocol {name} instead of {', '.join(sorted(own))}"
        return "" if name == reading else f"protocol {name}"

    return check


def _rows_with_protocol(published: Table, block: Block) -> tuple[Row, ...]:
    """Return the rows for which the paper used this block's protocol.

    There are none if the block has any other reason not to be comparable.
    """
    return tuple(
        row
        for row in published.rows
        if not block.version
        and any(
            block.reasons == Reasons(protocol=f"protocol {name}") for name in _protocols_of(row)
        )
    )


def _protocols_of(row: Row) -> set[str]:
    """Return the protocols that the row names for itself and that are built here."""
    return {row.protocol, *row.protocols.values()} - {"", ELSEWHERE}


def _has_protocol_of_page(
    entry: Result | Failure, readings: dict[str, str], of_rows: set[str]
) -> bool:
    """Return whether a result has a protocol of the page.

    That is the paper's protocol of the task, a variant such as co2-2021-11point, or the protocol of
    one of the table's rows.
    """
    reading = readings.get(entry.task)
    if reading is None:
        return False
    name = without_version(entry.protocol)
    return name == reading or name.startswith(reading + "-") or name in of_rows


def _title(published: Table, paper: Paper) -> list[str]:
    source = f"*{paper.title}*, {paper.venue}, arXiv:{paper.arxiv}."
    return [f"# {paper.name}, {published.number}", f"{published.title}.\n{source}"]


def _page_head(published: Table, paper: Paper, command: str) -> str:
    lines = [
        "\n\n".join(_title(published, paper)),
        "",
        f"Percent. Rows with → are measured here, all others are the paper's. Made by `{command}`.",
    ]
    grouped: dict[str, list[str]] = {}
    for column in published.columns:
        if column.block:
            grouped.setdefault(column.block, []).append(column.label)
    if grouped:
        groups = "; ".join(f"{title}: {', '.join(labels)}" for title, labels in grouped.items())
        lines += ["", f"Columns: {groups}."]
    lines += ["", noise_rule(sorted(tasks_of(published)))]
    return "\n".join(lines)


def sections(published: Table) -> list[Section]:
    """Return the printed groups of rows. If rows name the task, every group gets our rows."""
    groups = [
        Section(*named, tuple(rows))
        for named, rows in groupby(published.rows, lambda row: (row.group, row.task))
    ]
    if not any(section.ours for section in groups):
        title = "measured here" if any(section.title for section in groups) else ""
        groups.append(Section(title, "", ()))
    return groups


def _block(published: Table, block: Block, notes: Notes, *, printed: bool) -> PrintedTable:
    """Return a table with our rows, and on request with the paper's."""
    entries = {
        (section.task, model): [
            _checked_entry(published, block, model, column, section.task)
            for column in published.columns
        ]
        for section in sections(published)
        if section.ours
        for model in block.models
    }
    table_notes = TableNotes.of_entries((entry for row in entries.values() for entry in row), notes)
    lines: list[Line] = []
    for section in sections(published):
        rows = [_printed_line(published, row) for row in section.rows] if printed else []
        if section.ours:
            rows += [
                _backbone_line(published, block, model, entries[section.task, model], table_notes)
                for model in block.models
            ]
        if section.title and rows:
            lines.append(Line(label=section.title))
        lines += [replace(row, scope=section.task) for row in rows]
    return PrintedTable(
        header=("method", *(a.label for a in published.attributes)),
        headings=tuple(_heading(column) for column in published.columns),
        lines=tuple(lines),
        notes=_notes_line(block, table_notes) if lines else "",
        legend=_legend(published, block, printed=printed),
    )


def _notes_line(block: Block, table_notes: TableNotes) -> str:
    if not block.done:
        return ""
    return f"All → rows: {table_notes.line(block.protocols(block.columns))}."


def _heading(column: Column) -> Heading:
    return Heading(column.label, column.task, column.higher_is_better is not False)


def _backbone_line(
    published: Table,
    block: Block,
    model: Model,
    entries: Sequence[TableEntry],
    table_notes: TableNotes,
) -> Line:
    known = {"arch": model.arch, "epochs": model.epochs}
    return backbone_line(
        "→ " + row_label(model, block.models),
        entries,
        table_notes,
        decimals=[_decimals(published, column) for column in published.columns],
        attributes=[known.get(a.key, "") for a in published.attributes],
    )


def _checked_entry(
    published: Table, block: Block, model: Model, column: Column, task: str
) -> TableEntry:
    """Return the entry, with a warning if its score is hardly above that of random weights.

    Only numbers of the comparable blocks are checked.
    """
    entry = _entry(block, model, column, task)
    if entry.score is None or not block.comparable or model.untrained:
        return entry
    random = _random_score(published, block, column)
    printed = [value for row in published.rows if (value := row.values.get(column.key)) is not None]
    best = max(printed, default=None)
    doubt = low_score_warning(entry.score, random, best, task or column.task, column.metric)
    return replace(entry, failures=(*entry.failures, doubt)) if doubt else entry


def _random_score(published: Table, block: Block, column: Column) -> Score | None:
    """Return the score of the paper's random row, or of ours if the paper has none."""
    printed = [row.values.get(column.key) for row in published.rows if row.role == "random"]
    if printed and printed[0] is not None:
        return Score(mean=printed[0])
    ours = [_entry(block, m, column, "").score for m in block.models if m.untrained]
    return next((score for score in ours if score is not None), None)


def _entry(block: Block, model: Model, column: Column, section_task: str) -> TableEntry:
    task = section_task or column.task
    members = transfer_tasks() if task == AVERAGE else (task,)
    names = [name for member, name in block.columns if member in members]
    return table_entry(block, model, task, names[0] if names else "", column.metric)


def _printed_line(published: Table, row: Row) -> Line:
    notes = [row.note] if row.note else []
    notes += [f"protocol {row.protocol}"] if row.protocol else []
    return Line(
        label=f"{row.label} ({'; '.join(notes)})" if notes else row.label,
        attributes=tuple(_attribute(row, a.key) for a in published.attributes),
        numbers=tuple(_printed_number(published, row, column) for column in published.columns),
    )


def _attribute(row: Row, key: str) -> str:
    if key in row.marks:
        return _mark(row.marks[key], inferred=row.marks_inferred)
    value = row.attrs.get(key)
    return "–" if value is None else str(value)


def _mark(mark: Mark, *, inferred: bool) -> str:
    return f"({MARKS[mark]})" if inferred and mark is True else MARKS[mark]


def _printed_number(published: Table, row: Row, column: Column) -> PrintedNumber:
    value, decimals = row.values.get(column.key), _decimals(published, column)
    if value is None:
        return PrintedNumber(text="–")
    interval = row.ci.get(column.key)
    after = f" ± {interval:.1f}" if interval is not None else ""
    after += row.markers.get(column.key, "")
    if column.key in row.bracketed:
        mark = row.markers.get("bracketed", "")
        after += f" ({row.bracketed[column.key]:.{decimals}f}{mark})"
    score = Score(mean=value, std=interval or 0.0)
    return PrintedNumber(text=f"{value:.{decimals}f}", after=after, score=score)


def _decimals(published: Table, column: Column) -> int:
    """Return the number of decimals that the paper prints, 1 if it prints no number."""
    values = [row.values.get(column.key) for row in published.rows]
    printed = [repr(v).partition(".")[2] for v in values if v is not None]
    return max((len(digits) for digits in printed), default=1)


def _legend(published: Table, block: Block, *, printed: bool) -> str:
    """Return the meaning of the signs in a table."""
    lines = []
    if any(len(results) > 1 for results in block.done.values()):
        lines.append("- ± of → rows: standard deviation over the runs.")
    if any(results[0].interval95 for results in block.done.values() if len(results) == 1):
        lines.append("- ± of → rows with one run: 95 % interval over its trials.")
    if printed:
        empty = any(v is None for row in published.rows for v in row.values.values())
        lines += ["- –: not reported by the paper."] if empty else []
        lines += [f"- {fact}" for fact in published.facts]
    return "\n".join(lines)
