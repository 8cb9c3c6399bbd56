"""A table of chosen checkpoints and tasks, to paste into a paper: checkpoints by tasks, and a mean.

The cells hold numbers alone: what they depend on is in the lines that follow the table.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, NamedTuple, get_args

from benchmarks.results.differences import LEVEL, difference, holm, with_errors
from benchmarks.results.numbers import Number, main_numbers, mean_over_tasks, rank
from benchmarks.results.records import Comparison, grouped
from benchmarks.results.tables import Cell, Grid, Line, csv_text, latex_text, plain, row_label
from transfer.record import SIGNED_METRICS

MISSING = "–"
ALL_TASKS = "All tasks"
Format = Literal["markdown", "latex", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)


class ChosenTable(NamedTuple):
    """A table, and sentences on what its numbers depend on and what is missing."""

    table: Grid
    keys: list[str]
    """Task and reading of each column."""
    notes: list[str]

    def text(self, form: Format) -> str:
        """Return it in a format; LaTeX has the notes as comments, CSV has none."""
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
        """Return one of the numbers, for what they share."""
        return next(iter(self.numbers.values()))


def chosen_table(
    numbers: Iterable[Number], names: Sequence[str] = (), tasks: Sequence[str] = ()
) -> ChosenTable:
    """Return the table of these checkpoints (rows) and tasks (columns), in their order.

    names: checkpoints; all of them if none is given. tasks: ids such as in1k_linear, which stands
    for all readings of it that were run; readings such as in1k_linear@co2; families such as
    transfer_linear. If none is given, all tasks that two of the checkpoints have.

    A column has one protocol but for what the networks' input sets, one schedule and one state of
    the data: where a checkpoint has several, those that most of the checkpoints have. The best
    number of a column is bold if it is significantly ahead of every other one, after Holm's
    correction. The last column is the unweighted mean over the tasks, of rows that have all of
    them.

    ValueError for a name or a task without results.
    """
    scored = main_numbers(numbers)
    rows = rows_of(scored, names)
    columns = columns_of([one for one in scored if one.run.identity in rows], [*rows], tasks)
    cells = [[column.numbers.get(backbone) for column in columns] for backbone in rows]
    keys = [column.key for column in columns]
    labels, lines = _labels(keys), []
    for label, own in zip(rows.values(), cells, strict=True):
        shown = [*own, *([_mean(own)] if len(columns) > 1 else [])]
        lines.append(Line(words=[plain(label)], numbers=[_cell(number) for number in shown]))
    for index, column in enumerate(columns):
        if column.first.metric not in SIGNED_METRICS:
            _mark_best(lines, index, column.first.task)
    if len(columns) > 1:
        _mark_best(lines, len(columns), "")
    notes = [
        f"Percent. Bold: significantly better than every other row of the column (p < {LEVEL}, "
        f"Holm's correction). {MISSING}: no result under the column's conditions."
    ]
    subjects: dict[tuple[str, str], list[str]] = {}
    for column, label, own in zip(columns, labels, zip(*cells, strict=True), strict=True):
        for name, text in _column_notes(column, [*zip(rows.values(), own, strict=True)]):
            is_short = not name and label != column.key
            subject = f"{label} ({column.key})" if is_short else label
            subjects.setdefault((name, text), []).append(subject)
    for (name, text), own_labels in subjects.items():
        notes.append(f"{', '.join(filter(None, [name, *own_labels]))}: {text}.")
    heads = [*labels, *(["mean"] if len(columns) > 1 else [])]
    return ChosenTable(Grid(words=["checkpoint"], numbers=heads, lines=lines), keys, notes)


def tables_of_groups(numbers: Iterable[Number]) -> dict[str, ChosenTable]:
    """Return the table of each group of tasks, by its name, and that of all tasks.

    Each has all tasks of the group that two checkpoints have, and all checkpoints with one of them.
    """
    scored = main_numbers(numbers)
    columns = columns_of(scored, [*rows_of(scored, ())], ())
    groups = grouped((column.first.heading, column) for column in columns)
    if len(groups) > 1:
        groups[ALL_TASKS] = columns
    return {
        heading: chosen_table(
            [number for column in own for number in column.numbers.values()],
            tasks=[column.key for column in own],
        )
        for heading, own in groups.items()
    }


def _cell(number: Number | None) -> Cell:
    if number is None or number.score is None:
        return Cell(text=MISSING)
    return Cell(text=number.score.text(1), score=number.score, files=number.files)


def rows_of(numbers: Sequence[Number], names: Sequence[str]) -> dict[Backbone, str]:
    """Return the checkpoints of these names with their labels."""
    firsts = {one.run.identity: one for one in sorted(numbers, key=lambda one: one.row)}
    known = list(dict.fromkeys(name for name, _ in firsts))
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1) or known[:1]
            hint = f"did you mean {close[0]}?" if close else "the folder has no results"
            raise ValueError(f"--name: no results of {name!r}; {hint}")
    chosen = dict.fromkeys(names) or known
    rows = [number._replace(conditions="") for number in firsts.values()]
    return {
        row.run.identity: row_label(row, rows)
        for name in chosen
        for row in rows
        if row.run.backbone == name
    }


def columns_of(
    numbers: Sequence[Number], backbones: Sequence[Backbone], tasks: Sequence[str]
) -> list[_Column]:
    """Return the columns of these tasks in their order, each from the numbers that most share."""
    alike: dict[Comparison, dict[Backbone, Number]] = {}
    for number in sorted(numbers, key=lambda one: (rank(one.reasons, one.version), one.conditions)):
        own = alike.setdefault(number.runs[0].comparison, {})
        own.setdefault(number.run.identity, number)  # of several conditions the most frequent
    found: dict[str, _Column] = {}
    for comparison, own in alike.items():  # those at the paper's schedule come first
        other = found.get(comparison.key)
        if other is None or len(own) > len(other.numbers):
            found[comparison.key] = _Column(comparison.key, own)
    if not tasks:
        wanted = min(2, len(backbones))
        return [column for column in found.values() if len(column.numbers) >= wanted]
    chosen: dict[str, _Column] = {}
    for task in tasks:
        names = ((column, column.key, column.first.task) for column in found.values())
        named = [c for c, key, name in names if task in (key, name, name.split("/")[0])]
        if not named:
            known = ", ".join(found) or "none"
            raise ValueError(f"--tasks: no results of {task!r}; these checkpoints have {known}")
        chosen |= {column.key: column for column in named}
    return [*chosen.values()]


def _labels(keys: Sequence[str]) -> list[str]:
    """Return the keys without what they share by nature, as far as they stay different."""
    short = [re.sub("^transfer_linear/|_linear$|_knn$", "", key) for key in keys]
    return [s if short.count(s) == 1 else key for s, key in zip(short, keys, strict=True)]


def _mean(row: Sequence[Number | None]) -> Number | None:
    """Return the mean over all columns; None if the row does not have all of them."""
    numbers = [number for number in row if number]
    if len(numbers) < len(row):
        return None
    runs = tuple(run for number in numbers for run in number.runs)
    return numbers[0]._replace(score=mean_over_tasks(numbers), runs=runs)


def _mark_best(lines: Sequence[Line], index: int, task: str) -> None:
    """Mark the best number of a column if it is significantly ahead of all others after Holm."""
    cells = [cell for line in lines if (cell := line.numbers[index]).score and cell.score.finite]
    scores = with_errors([cell.score for cell in cells if cell.score])
    if len(scores) < 2:
        return
    best = max(range(len(scores)), key=lambda place: scores[place].mean)
    others = [score for place, score in enumerate(scores) if place != best]
    differences = [difference(scores[best], other, task) for other in others]
    cells[best].best = all(holm(one.p for one in differences))


def _column_notes(
    column: _Column, numbers: Sequence[tuple[str, Number | None]]
) -> Iterator[tuple[str, str]]:
    """Yield what a column depends on, and what more each row's number does, after the row's name.

    The name is empty for the column.
    """
    # the notes say what was altered
    said = ", ".join(column.first.reasons._replace(altered="").words) or "paper schedule, full data"
    own = {name: _number_notes(number, said) for name, number in numbers if number}
    shared = [note for note in next(iter(own.values())) if all(note in n for n in own.values())]
    protocol = f"protocol {column.first.runs[0].protocol}"
    yield "", "; ".join([column.first.metric, protocol, said, *shared])
    for name, of_row in own.items():
        if rest := [note for note in of_row if note not in shared]:
            yield name, "; ".join(rest)


def _number_notes(number: Number, said: str) -> list[str]:
    """Return what a number depends on, without what is said of its column."""
    words = [number.conditions, *number.notes, *number.failures]
    if len(number.runs) > 1:
        words.append("mean ± standard deviation")
    return [word for word in words if word and word not in said]
