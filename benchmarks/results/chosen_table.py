"""Table of chosen checkpoints (rows) and tasks (columns) for a paper.

The cells contain only numbers. Notes below the table state their protocols and conditions.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from benchmarks.results.differences import LEVEL
from benchmarks.results.numbers import (
    Number,
    by_comparison,
    common_notes,
    main_numbers,
    mean_over_tasks,
    one_per_backbone,
)
from benchmarks.results.records import Identity
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
    without_escapes,
)
from benchmarks.words import grouped, short_key
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
            rows = [[without_escapes(cell.text) for cell in row] for row in self.table.cells()]
            return csv_text(rows[0], rows[1:])
        if form == "latex":
            return "".join(f"% {latex_text(note)}\n" for note in self.notes) + self.table.latex()
        return "\n".join(
            [self.table.markdown(), "", *(f"- {plain(note)}" for note in self.notes), ""]
        )


def chosen_table(
    numbers: Iterable[Number], names: Sequence[str], tasks: Sequence[str]
) -> ChosenTable:
    """Return the table of these checkpoints and tasks, in the given order.

    names: checkpoints; empty for all. tasks: ids such as in1k_linear, which selects all its
    protocol variants with results; variants such as in1k_linear@co2; families such as
    transfer_linear. Empty for all tasks that two of the checkpoints have.

    A column has one protocol (apart from settings that follow from the networks' input), one
    schedule and one state of the data. If a checkpoint has several, the one is taken that most
    checkpoints have. The best number of a column is bold if it is significantly better than every
    other one after Holm's correction. The last column is the unweighted mean over the tasks, apart
    from cosines, for rows with all tasks.

    Raises ValueError for a name or task without results.
    """
    scored = main_numbers(numbers)
    rows = rows_of(scored, names)
    selected = [number for number in scored if number.backbone.identity in rows]
    columns = columns_of(selected, tasks)
    cells = [[column.get(identity) for column in columns.values()] for identity in rows]
    keys, firsts = [*columns], [next(iter(column.values())) for column in columns.values()]
    labels, tasks_of_columns = _labels(keys), [first.task for first in firsts]
    heads, shown = labels, cells
    # a cosine is no accuracy
    averaged = [i for i, first in enumerate(firsts) if first.metric not in SIGNED_METRICS]
    if len(averaged) > 1:
        heads, tasks_of_columns = [*labels, "mean"], [*tasks_of_columns, ""]
        shown = [[*row, _mean([row[i] for i in averaged])] for row in cells]
    lines = [
        Line(texts=[plain(label)], numbers=[our_cell(n) if n else Cell(text=MISSING) for n in row])
        for label, row in zip(rows.values(), shown, strict=True)
    ]
    for index, task in enumerate(tasks_of_columns):
        if index == len(columns) or firsts[index].metric not in SIGNED_METRICS:
            mark_best((line.numbers[index] for line in lines), task, after_holm=True)
    notes = [
        f"Percent. Bold: significantly better than every other row of the column (p < {LEVEL}, "
        f"Holm's correction). {MISSING}: no result under the column's conditions."
    ]
    subjects: list[tuple[tuple[str, str], str]] = []  # row and text of a note, and its column
    by_column = zip(*cells, strict=True)
    for key, label, first, entries in zip(keys, labels, firsts, by_column, strict=True):
        conditions = first.reasons._replace(altered="").text  # notes list altered settings
        row_notes = {
            row: _number_notes(number, conditions)
            for row, number in zip(rows.values(), entries, strict=True)
            if number
        }
        shared = common_notes(row_notes.values())
        protocol = f"protocol {first.runs[0].protocol}"
        text = "; ".join([first.metric, protocol, conditions, *shared])
        subjects.append((("", text), label if label == key else f"{label} ({key})"))
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
    columns = columns_of(main_numbers(numbers), ())
    groups = grouped((next(iter(columns[key].values())).heading, key) for key in columns)
    if len(groups) > 1:
        groups[ALL_TASKS] = [*columns]
    return {
        heading: chosen_table([n for key in keys for n in columns[key].values()], (), keys)
        for heading, keys in groups.items()
    }


def rows_of(numbers: Sequence[Number], names: Sequence[str]) -> dict[Identity, str]:
    """Return the checkpoints of these names with their labels."""
    rows = one_per_backbone(numbers)
    available = list(dict.fromkeys(row.backbone.name for row in rows))
    for name in names:
        if name not in available:
            candidates = nearest(name, available) or "none"
            raise ValueError(f"--name: no results of {name!r}; nearest: {candidates}")
    selected = dict.fromkeys(names) or available
    return {
        row.backbone.identity: row_label(row, rows)
        for name in selected
        for row in rows
        if row.backbone.name == name
    }


def columns_of(
    numbers: Sequence[Number], tasks: Sequence[str]
) -> dict[str, dict[Identity, Number]]:
    """Return the numbers of these tasks by checkpoint, each task with the most common comparison.

    The keys are tasks with their protocol variant, such as in1k_linear@co2.
    """
    groups = grouped((of.key, group) for of, group in by_comparison(numbers).items())
    columns = {key: max(candidates, key=len) for key, candidates in groups.items()}
    if not tasks:
        minimum = min(2, len({number.backbone.identity for number in numbers}))
        return {key: column for key, column in columns.items() if len(column) >= minimum}
    selected: dict[str, dict[Identity, Number]] = {}
    for task in tasks:
        ids = {key: next(iter(column.values())).task for key, column in columns.items()}
        keys = [key for key, of in ids.items() if task in (key, of, of.split("/")[0])]
        if not keys:
            available = ", ".join(columns) or "none"
            raise ValueError(f"--tasks: no results of {task!r}; these checkpoints have {available}")
        selected |= {key: columns[key] for key in keys}
    return selected


def _labels(keys: Sequence[str]) -> list[str]:
    """Return short labels of the columns, if they stay unique."""
    short = [short_key(key) for key in keys]
    return [s if short.count(s) == 1 else key for s, key in zip(short, keys, strict=True)]


def _mean(row: Sequence[Number | None]) -> Number | None:
    """Return the mean over these columns; None if one is missing."""
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
    elif number.score and number.score.interval:
        notes.append("± 95 % interval over trials")
    return [note for note in notes if note and note not in conditions]
