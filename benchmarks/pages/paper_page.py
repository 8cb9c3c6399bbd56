"""Page of one published table: the paper's rows in its order, ours below, then the other blocks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from benchmarks.pages.against import (
    comparable_block,
    comparison_lines,
    missing_row_lines,
    norm_group_lines,
    rows_of_recipe,
)
from benchmarks.pages.blocks import (
    Block,
    ProtocolCheck,
    Reasons,
    column_of,
    sort_into_blocks,
)
from benchmarks.pages.entries import Entry, table_entry
from benchmarks.pages.published import (
    AVERAGE,
    ELSEWHERE,
    Column,
    Paper,
    Row,
    Table,
    published_score,
    transfer_tasks,
)
from benchmarks.pages.records import Failure, Model, Result, Results, grouped
from benchmarks.pages.table_rows import (
    RULE,
    Line,
    Notes,
    PrintedTable,
    backbone_line,
    backbone_lines,
    backbones_of,
    notes_line,
    row_label,
    shared_notes,
    with_best,
)

MARGINS_ABOVE_RANDOM = {
    **dict.fromkeys(("coco_det", "coco_insseg", "coco_keypoint"), ("AP", 3.0)),
    "voc0712_det_c4": ("AP", 3.0),
    "voc12_seg_fcn": ("mIoU", 10.0),
}
"""Metric and margin in points by task id. A fine-tuned network that is not further above random
weights may have been trained from scratch by mistake."""
MARKS = {True: "✓", False: "", None: "?", "default": "*"}


def tasks_of(published: Table) -> set[str]:
    """Return the ids of the tasks in the table; the average counts as its twelve members."""
    named = {column.task for column in published.columns} | {row.task for row in published.rows}
    return (named - {"", AVERAGE}) | (set(transfer_tasks()) if AVERAGE in named else set())


@dataclass(frozen=True, kw_only=True)
class PaperTables:
    """Tables of one page, and the notes below them."""

    tables: tuple[PrintedTable, ...]
    """The table with the paper's rows, then our rows that stand apart."""
    models: tuple[Model, ...]
    """Our rows of all tables."""
    notes: Notes
    done: tuple[Result, ...]
    """All results that the page shows."""

    @property
    def num_ours(self) -> int:
        """Number of our rows."""
        return sum(line.ours for table in self.tables for line in table.lines)


def paper_page(published: Table, paper: Paper, results: Results, command: str) -> str:
    """Return the page."""
    shown = paper_tables(published, results)
    ours = comparable_block(shown.done)
    parts = [_page_head(published, paper, command)]
    for table in shown.tables:
        parts += [f"## {table.title}"] if table.title else []
        parts += [table.markdown() if table.lines else "No row yet."]
        parts += [table.notes, "\n".join(f"- {line}" for line in table.legend)]
    parts += ["## Notes", "\n".join(shown.notes.lines())] if shown.notes.texts else []
    parts += ["## Against the paper", "\n".join(comparison_lines(published, ours))]
    if needed := missing_row_lines(published, ours):
        parts += ["## Missing rows (`python -m pretrain RECIPE`)", "\n".join(needed)]
    if models := backbones_of(shown.models):
        parts += ["## Backbones", *backbone_lines(models)]
    return "\n\n".join(part for part in parts if part) + "\n"


def settings_page(published: Table, paper: Paper, command: str) -> str:
    """Return the page of a table that prints settings and no result."""
    shown = _table(published, EMPTY, Notes(), printed=True)
    facts = "\n".join(f"- {fact}" for fact in published.facts)
    parts = [*_title(published, paper), f"Made by `{command}`.", shown.markdown(), facts]
    return "\n\n".join(parts) + "\n"


def paper_tables(published: Table, results: Results) -> PaperTables:
    """Return the paper's rows with ours, then our rows that stand apart, block by block."""
    protocol = published.columns[0].protocol
    named = {column.task: column.protocol for column in published.columns}
    readings = {task: named.get(task, protocol) for task in tasks_of(published)}
    of_rows = {name for row in published.rows for name in _protocols_of(row)}

    def belongs(entry: Result | Failure) -> bool:
        """Return whether it has the paper's protocol of the task, a variant, or that of a row."""
        task, name = column_of(entry)
        reading = readings.get(task)
        return reading is not None and (
            name == reading or name.startswith(f"{reading}-") or name in of_rows
        )

    done = tuple(filter(belongs, results.done))
    failed = filter(belongs, results.failed)
    found = sort_into_blocks(done, failed, _protocol_check(published, readings, of_rows))
    comparable = next((b for b in found if b.comparable and not b.version), EMPTY)
    others = [b for b in found if b is not comparable]
    others.sort(key=lambda block: not _rows_with_protocol(published, block))
    notes = Notes()
    tables = [_table(published, comparable, notes, printed=True)]
    for block in others:
        rows = _rows_with_protocol(published, block)
        beside = ": not comparable with the rows above" if published.rows else ""
        if rows:
            beside = f": the paper's protocol for {', '.join(row.label for row in rows)}"
        shown, title = replace(published, rows=rows or published.rows), f"{block.heading}{beside}"
        tables.append(_table(shown, block, notes, printed=bool(rows), title=title))
    models = tuple(model for block in (comparable, *others) for model in block.models)
    return PaperTables(tables=tuple(tables), models=models, notes=notes, done=done)


EMPTY = Block(done={}, failed={})


def _protocol_check(published: Table, readings: dict[str, str], of_rows: set[str]) -> ProtocolCheck:
    """Return the function that finds protocols of results that may not stand beside printed rows.

    A result may stand there if it has the protocol of its column. If the paper used another
    protocol for the row of the backbone's recipe, the result must have that one.
    """

    def check(model: Model, task: str, name: str) -> str:
        reading = readings[task]
        rows = [r for r in rows_of_recipe(published, model) if r.task in ("", task)]
        own = {row.protocol_for(task, reading) for row in rows} - {""}
        if own and name not in own and name in {reading, *of_rows}:
            return f"{_apart(name)} instead of {', '.join(sorted(own))}"
        return "" if name == reading else _apart(name)

    return check


def _apart(protocol: str) -> str:
    return f"protocol {protocol}"


def _rows_with_protocol(published: Table, block: Block) -> tuple[Row, ...]:
    """Return the rows for which the paper used this block's protocol.

    There are none if the block has any other reason not to be comparable.
    """
    return tuple(
        row
        for row in published.rows
        if not block.version
        if any(block.reasons == Reasons(protocol=_apart(name)) for name in _protocols_of(row))
    )


def _protocols_of(row: Row) -> set[str]:
    """Return the protocols that the row names for itself and that are built here."""
    return {row.protocol, *row.protocols.values()} - {"", ELSEWHERE}


def _title(published: Table, paper: Paper) -> list[str]:
    source = f"*{paper.title}*, {paper.venue}, arXiv:{paper.arxiv}."
    return [f"# {paper.name}, {published.number}", f"{published.title}.\n{source}"]


def _page_head(published: Table, paper: Paper, command: str) -> str:
    lines = [
        "\n\n".join(_title(published, paper)),
        "",
        f"Percent. Rows with → are measured here, all others are the paper's. Made by `{command}`.",
    ]
    groups = grouped((column.block, column.label) for column in published.columns if column.block)
    if groups:
        listed = "; ".join(f"{title}: {', '.join(labels)}" for title, labels in groups.items())
        lines += ["", f"Columns: {listed}."]
    lines += ["", RULE]
    return "\n".join(lines)


def _sections(published: Table) -> list[tuple[str, str, tuple[Row, ...]]]:
    """Return title, task and printed rows of each group. Our rows go where a task is named.

    Where no row names its task, they go to a group of their own, the last.
    """
    groups = [
        (title, task, tuple(rows))
        for (title, task), rows in groupby(published.rows, lambda row: (row.group, row.task))
    ]
    if any(task for _, task, _ in groups):
        return groups
    return [*groups, ("measured here" if any(title for title, *_ in groups) else "", "", ())]


def _table(
    published: Table, block: Block, notes: Notes, *, printed: bool, title: str = ""
) -> PrintedTable:
    """Return a table with our rows, and on request with the paper's."""
    entries = {
        (task, model): [
            _checked_entry(published, block, model, column, task) for column in published.columns
        ]
        for _, task, rows in _sections(published)
        if task or not rows
        for model in block.models
    }
    everywhere = shared_notes(entry for row in entries.values() for entry in row)
    decimals = [_decimals(published, column) for column in published.columns]
    lines: list[Line] = []
    for group, task, rows in _sections(published):
        own = [_printed_line(published, row) for row in rows] if printed else []
        for model in block.models if task or not rows else ():
            known = {"arch": model.arch, "epochs": model.epochs}
            one = backbone_line(
                "→ " + row_label(model, block.models),
                entries[task, model],
                everywhere,
                notes,
                decimals=decimals,
                attributes=[known.get(key, "") for key in published.attributes],
            )
            own.append(one)
        lines += [Line(label=group)] if group and own else []
        lines += [replace(line, scope=task) for line in own]
    of_all = notes_line(block.protocols(block.columns), everywhere)
    return PrintedTable(
        ("method", *published.attributes.values()),
        published.columns,
        with_best(lines, published.columns),
        f"All → rows: {of_all}." if lines and block.done else "",
        title,
        tuple(_legend(published, block, printed=not title)),
    )


def _checked_entry(
    published: Table, block: Block, model: Model, column: Column, section_task: str
) -> Entry:
    """Return the entry, with a doubt if its score is hardly above that of random weights."""
    entry = _entry(block, model, column, section_task)
    metric, margin = MARGINS_ABOVE_RANDOM.get(section_task or column.task, ("", 0.0))
    if entry.score is None or not block.comparable or model.untrained or metric != column.metric:
        return entry
    random = [row.values.get(column.key) for row in published.rows if row.role == "random"]
    ours = [_entry(block, m, column, section_task).score for m in block.models if m.untrained]
    random += [score.mean for score in ours if score is not None]
    known = next((score for score in random if score is not None), math.nan)
    if not entry.score.mean - known <= margin:  # nothing is above or below what is no number
        return entry
    doubt = f"not more than {margin:g} {metric} above random weights ({known:.1f})"
    return replace(entry, failures=(*entry.failures, f"{doubt}: weights may not be loaded"))


def _entry(block: Block, model: Model, column: Column, section_task: str) -> Entry:
    task = section_task or column.task
    members = transfer_tasks() if task == AVERAGE else (task,)
    protocol = next((name for member, name in block.columns if member in members), "")
    return table_entry(block, model, (task, protocol), column.metric)


def _printed_line(published: Table, row: Row) -> Line:
    notes = [row.note] if row.note else []
    notes += [f"protocol {row.protocol}"] if row.protocol else []
    return Line(
        label=f"{row.label} ({'; '.join(notes)})" if notes else row.label,
        attributes=tuple(_attribute(row, key) for key in published.attributes),
        numbers=tuple(_printed_number(published, row, column) for column in published.columns),
    )


def _attribute(row: Row, key: str) -> str:
    if key in row.marks:
        mark = MARKS[row.marks[key]]
        return f"({mark})" if row.marks_inferred and row.marks[key] is True else mark
    value = row.attrs.get(key)
    return "–" if value is None else str(value)


def _printed_number(published: Table, row: Row, column: Column) -> Entry:
    value, decimals = row.values.get(column.key), _decimals(published, column)
    if value is None:
        return Entry(text="–")
    interval = row.ci.get(column.key)
    after = f" ± {interval:.1f}" if interval is not None else ""
    after += row.markers.get(column.key, "")
    if column.key in row.bracketed:
        mark = row.markers.get("bracketed", "")
        after += f" ({row.bracketed[column.key]:.{decimals}f}{mark})"
    score = published_score(row, column, value)
    return Entry(text=f"{value:.{decimals}f}", after=after, score=score)


def _decimals(published: Table, column: Column) -> int:
    """Return the number of decimals that the paper prints, 1 if it prints no number."""
    values = [row.values.get(column.key) for row in published.rows]
    printed = [repr(v).partition(".")[2] for v in values if v is not None]
    return max((len(digits) for digits in printed), default=1)


def _legend(published: Table, block: Block, *, printed: bool) -> Iterator[str]:
    """Yield the meaning of the signs in a table."""
    if any(len(results) > 1 for results in block.done.values()):
        yield "± of → rows: standard deviation over the runs."
    single = (results[0].details for results in block.done.values() if len(results) == 1)
    if any(details.get("interval95") for details in single):
        yield "± of → rows with one run: 95 % interval over its trials."
    if printed:
        if any(v is None for row in published.rows for v in row.values.values()):
            yield "–: not reported by the paper."
        yield from published.facts
        yield from norm_group_lines((*published.rows, *published.points))
