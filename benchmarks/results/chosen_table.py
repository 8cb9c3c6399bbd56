"""Table of chosen checkpoints (rows) and tasks (columns) for a paper.

The cells contain only numbers. Notes below the table state their protocols and conditions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from benchmarks.results.differences import LEVEL
from benchmarks.results.numbers import (
    Number,
    block_sort_key,
    common_notes,
    main_numbers,
    mean_over_tasks,
)
from benchmarks.results.records import Comparison, grouped
from benchmarks.results.tables import (
    Cell,
    Grid,
    Line,
    csv_text,
    latex_text,
    mark_best,
    our_cell,
    plain,
    row_label,
)
from pretrain.running.command_line import nearest
from transfer.record import SIGNED_METRICS

MISSING = "–"
ALL_TASKS = "All tasks"
Format = Literal["markdown", "latex", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)


class ChosenTable(NamedTuple):
    """A table with notes on its numbers and on missing results."""

    table: Grid
    keys: list[str]
    """Task and protocol variant of each column."""
    notes: list[str]

    def text(self, form: Format) -> str:
        """Return the table as text; LaTeX has notes as comments, CSV none."""
        if form == "csv":
            rows = [[cell.text for cell in row] for row in self.table.cells()]
            return csv_text(rows[0], rows[1:])
        if form == "latex":
            return "".join(f"% {latex_text(note)}\n" for note in self.notes) + self.table.latex()
        return "\n".join(
            [self.table.markdown(), "", *(f"- {plain(note)}" for note in self.notes), ""]
        )


Backbone = tuple[str, str]
"""Name of a checkpoint, and hash of its weights."""


class _Column(NamedTuple):
    """Numbers of one task that may be compared, by checkpoint."""

    key: str
    numbers: Mapping[Backbone, Number]

    @property
    def first(self) -> Number:
        """Return any of the numbers, for their common properties."""
        return next(iter(self.numbers.values()))


def chosen_table(
    numbers: Iterable[Number], names: Sequence[str] = (), tasks: Sequence[str] = ()
) -> ChosenTable:
    """Return the table of these checkpoints and tasks, in the given order.

    names: checkpoints; empty for all. tasks: ids such as in1k_linear, which selects all its
    protocol variants with results; variants such as in1k_linear@co2; families such as
    transfer_linear. Empty for all tasks that two of the checkpoints have.

    A column has one protocol (apart from settings that follow from the networks' input), one
    schedule and one state of the data. If a checkpoint has several, the one is taken that most
    checkpoints have. The best number of a column is bold if it is significantly better than every
    other one after Holm's correction. The last column is the unweighted mean over the tasks, for
    rows with all tasks.

    Raises ValueError for a name or task without results.
    """
    scored = main_numbers(numbers)
    rows = rows_of(scored, names)
    selected = [number for number in scored if number.run.identity in rows]
    columns = columns_of(selected, [*rows], tasks)
    cells = [[column.numbers.get(backbone) for column in columns] for backbone in rows]
    keys = [column.key for column in columns]
    labels, tasks_of_columns = _labels(keys), [column.first.task for column in columns]
    heads, shown = labels, cells
    if len(columns) > 1:
        heads, tasks_of_columns = [*labels, "mean"], [*tasks_of_columns, ""]
        shown = [[*row, _mean(row)] for row in cells]
    lines = [
        Line(texts=[plain(label)], numbers=[our_cell(n) if n else Cell(text=MISSING) for n in row])
        for label, row in zip(rows.values(), shown, strict=True)
    ]
    for index, task in enumerate(tasks_of_columns):
        if index == len(columns) or columns[index].first.metric not in SIGNED_METRICS:
            mark_best((line.numbers[index] for line in lines), task, after_holm=True)
    notes = [
        f"Percent. Bold: significantly better than every other row of the column (p < {LEVEL}, "
        f"Holm's correction). {MISSING}: no result under the column's conditions."
    ]
    subjects: list[tuple[tuple[str, str], str]] = []  # row and text of a note, and its column
    for column, label, entries in zip(columns, labels, zip(*cells, strict=True), strict=True):
        conditions = column.first.reasons._replace(altered="").text  # notes list altered settings
        row_notes = {
            row: _number_notes(number, conditions)
            for row, number in zip(rows.values(), entries, strict=True)
            if number
        }
        shared = common_notes(row_notes.values())
        protocol = f"protocol {column.first.runs[0].protocol}"
        text = "; ".join([column.first.metric, protocol, conditions, *shared])
        subjects.append((("", text), label if label == column.key else f"{label} ({column.key})"))
        for row, texts in row_notes.items():
            if further := "; ".join(note for note in texts if note not in shared):
                subjects.append(((row, further), label))
    for (row, text), of_columns in grouped(subjects).items():
        notes.append(f"{', '.join(filter(None, [row, *of_columns]))}: {text}.")
    return ChosenTable(Grid(texts=["checkpoint"], numbers=heads, lines=lines), keys, notes)


def tables_of_groups(numbers: Iterable[Number]) -> dict[str, ChosenTable]:
    """Return a table per group of tasks, and one of all tasks.

    A table contains all tasks of its group that two checkpoints have, and all checkpoints with one
    of these tasks.
    """
    scored = main_numbers(numbers)
    columns = columns_of(scored, [*rows_of(scored, ())], ())
    groups = grouped((column.first.heading, column) for column in columns)
    if len(groups) > 1:
        groups[ALL_TASKS] = columns
    return {
        heading: chosen_table(
            [number for column in group_columns for number in column.numbers.values()],
            tasks=[column.key for column in group_columns],
        )
        for heading, group_columns in groups.items()
    }


def rows_of(numbers: Sequence[Number], names: Sequence[str]) -> dict[Backbone, str]:
    """Return the checkpoints of these names with their labels."""
    firsts = {n.run.identity: n for n in sorted(numbers, key=lambda number: number.row)}
    available = list(dict.fromkeys(name for name, _ in firsts))
    for name in names:
        if name not in available:
            candidates = nearest(name, available) or "none"
            raise ValueError(f"--name: no results of {name!r}; nearest: {candidates}")
    selected = dict.fromkeys(names) or available
    rows = [number._replace(conditions="") for number in firsts.values()]
    return {
        row.run.identity: row_label(row, rows)
        for name in selected
        for row in rows
        if row.run.backbone == name
    }


def columns_of(
    numbers: Sequence[Number], backbones: Sequence[Backbone], tasks: Sequence[str]
) -> list[_Column]:
    """Return the columns of these tasks, each with the most common comparison."""
    by_comparison: dict[Comparison, dict[Backbone, Number]] = {}
    for number in sorted(
        numbers, key=lambda n: (block_sort_key(n.reasons, n.version), n.conditions)
    ):
        # the most frequent conditions come first
        by_backbone = by_comparison.setdefault(number.runs[0].comparison, {})
        by_backbone.setdefault(number.run.identity, number)
    # the paper's schedule comes first
    candidates = grouped((c.key, _Column(c.key, group)) for c, group in by_comparison.items())
    columns = [max(group, key=lambda column: len(column.numbers)) for group in candidates.values()]
    if not tasks:
        min_backbones = min(2, len(backbones))
        return [column for column in columns if len(column.numbers) >= min_backbones]
    selected: dict[str, _Column] = {}
    for task in tasks:
        names = ((c, (c.key, c.first.task, c.first.task.split("/")[0])) for c in columns)
        matching = {column.key: column for column, of_column in names if task in of_column}
        if not matching:
            available = ", ".join(column.key for column in columns) or "none"
            raise ValueError(f"--tasks: no results of {task!r}; these checkpoints have {available}")
        selected |= matching
    return [*selected.values()]


def _labels(keys: Sequence[str]) -> list[str]:
    """Return short labels of the columns, if they stay unique."""
    short = [re.sub("^transfer_linear/|_linear$|_knn$", "", key) for key in keys]
    return [s if short.count(s) == 1 else key for s, key in zip(short, keys, strict=True)]


def _mean(row: Sequence[Number | None]) -> Number | None:
    """Return the mean over all columns; None if one is missing."""
    numbers = [number for number in row if number]
    if len(numbers) < len(row):
        return None
    runs = tuple(run for number in numbers for run in number.runs)
    return numbers[0]._replace(score=mean_over_tasks(numbers), runs=runs)


def _number_notes(number: Number, conditions: str) -> list[str]:
    """Return notes on a number that its column does not state."""
    notes = [number.conditions, *number.notes, *number.failures]
    if len(number.runs) > 1:
        notes.append("mean ± standard deviation")
    return [note for note in notes if note and note not in conditions]
