"""Lines of numbers with raised notes, the best of each column bold.

entries.py makes the entries of a line from records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.pages.entries import Score, TableEntry
from benchmarks.pages.markdown import Notes, bold, table
from benchmarks.pages.records import DECLARED, STAND_IN_TEXTURE, Model
from benchmarks.pages.verdict import best_index


@dataclass(frozen=True)
class Heading:
    """Heading of a column of numbers."""

    label: str
    task: str
    """Task whose tolerance decides what is bold; a line's scope takes precedence."""
    higher_is_better: bool = True


@dataclass(frozen=True, kw_only=True)
class PrintedNumber:
    """One number as it will be printed."""

    text: str
    after: str = ""
    """Footnote marks."""
    score: Score | None = None
    files: tuple[str, ...] = ()
    """Paths of the records behind one of our numbers, below the results."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row as it will be printed."""

    label: str
    attributes: tuple[str, ...] = ()
    numbers: tuple[PrintedNumber, ...] = ()
    scope: str = ""
    """Task of the line's section; the best number is chosen among the lines of one scope."""
    ours: bool = False
    """The numbers were measured here."""


@dataclass(frozen=True, kw_only=True)
class PrintedTable:
    """A table as it will be printed: columns of text, columns of numbers, rows."""

    header: tuple[str, ...]
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    """Rows; one without numbers is the title of those that follow."""
    notes: str = ""
    """Notes that hold for all our rows."""
    heading: str = ""
    """Conditions of rows that stand apart; empty for the table with the paper's rows."""
    legend: str = ""
    """Meaning of the signs, as a list; empty if there are none."""

    def best(self) -> set[tuple[int, int]]:
        """Return row and column of each number that leads its scope by more than the noise."""
        return {
            (row, j)
            for j, heading in enumerate(self.headings)
            for scope in {line.scope for line in self.lines}
            if (row := _best_row(self.lines, j, scope, heading)) is not None
        }


@dataclass(frozen=True)
class TableNotes:
    """Notes on how numbers were computed: those that hold for a whole table, and all others."""

    everywhere: tuple[str, ...]
    notes: Notes

    @classmethod
    def of_entries(cls, entries: Iterable[TableEntry], notes: Notes) -> "TableNotes":
        """Return the notes of the entries of one table."""
        return cls(shared_notes(entries), notes)

    def line(self, protocols: str) -> str:
        """Return the table's protocols and the notes that hold for all of it, as one line."""
        return "; ".join((f"protocol {protocols}", *self.everywhere))


def shared_notes(entries: Iterable[TableEntry]) -> tuple[str, ...]:
    """Return the notes that every number has, in order."""
    rows = [entry.notes for entry in entries if entry.score]
    return tuple(n for n in rows[0] if all(n in row for row in rows)) if rows else ()


def backbone_line(
    label: str,
    entries: Sequence[TableEntry],
    table_notes: TableNotes,
    *,
    decimals: Sequence[int],
    attributes: Sequence[str] = (),
) -> Line:
    """Return one of our rows; notes that hold for all its numbers are marked at its name."""
    of_row = [note for note in shared_notes(entries) if note not in table_notes.everywhere]
    label += table_notes.notes.mark(of_row)
    numbers = []
    for entry, digits in zip(entries, decimals, strict=True):
        own = [note for note in entry.notes if note not in (*table_notes.everywhere, *of_row)]
        text = entry.score.text(digits) if entry.score else entry.missing
        after = table_notes.notes.mark([*own, *entry.failures])
        numbers.append(PrintedNumber(text=text, after=after, score=entry.score, files=entry.files))
    return Line(label=label, attributes=tuple(attributes), numbers=tuple(numbers), ours=True)


def row_label(model: Model, rows: Sequence[Model]) -> str:
    """Return the name of a row's backbone.

    If two backbones have one name, the beginning of the weights' hash follows. Further rows of a
    backbone name their conditions too.
    """
    twins = len({other.sha256 for other in rows if other.name == model.name}) > 1
    name = model.name + DECLARED * model.declared
    label = f"{name} ({model.sha256[:8]})" if twins else name
    return f"{label} ({model.other_conditions})" if model.other_conditions else label


def backbones_of(models: Iterable[Model]) -> list[Model]:
    """Return each backbone once, however many rows it has, in order."""
    return sorted({replace(model, other_conditions="") for model in models})


def declaration_notes(models: Iterable[Model]) -> list[str]:
    """Return the meaning of the sign of declared recipes, if one of the backbones has it."""
    if not any(model.declared for model in models):
        return []
    return [
        f"{DECLARED}: the file does not say how it was made; its recipe is what a user declared "
        "with `--as`, and nothing here has checked it."
    ]


def backbone_description(model: Model) -> str:
    """Return the description of a backbone as a list item."""
    network = f"{model.arch}, {model.stem} stem" if model.arch else "no result on this page"
    origin = model.source
    if model.recipe:
        origin = f"{model.method} ({model.recipe}), {model.epochs} epochs on {model.data}"
        if model.declared:
            origin = f"{model.source}; declared as {model.recipe}"
    if model.heads:
        origin += f"; heads {' '.join(model.heads)}"
    if model.texture == STAND_IN_TEXTURE:
        origin += f"; textures by {model.texture} instead of style transfer: no reproduction"
    elif model.texture:
        origin += f"; textures from a {model.texture}"
    weights = f"weights {model.sha256[:12]}" if model.sha256 else ""
    return "- " + "; ".join(x for x in (f"{model.name}: {network}", origin, weights) if x)


def grid(header: Sequence[str], headings: Sequence[Heading], lines: Sequence[Line]) -> str:
    """Return the table; a number is bold if it leads its scope by more than the noise."""
    printed = PrintedTable(header=tuple(header), headings=tuple(headings), lines=tuple(lines))
    return markdown_table(printed)


def markdown_table(printed: PrintedTable) -> str:
    """Return the table as markdown; the best numbers are bold."""
    best = printed.best()
    width = len(printed.header) - 1 + len(printed.headings)
    rows = []
    for i, line in enumerate(printed.lines):
        numbers = [
            (bold(number.text) if (i, j) in best else number.text) + number.after
            for j, number in enumerate(line.numbers)
        ]
        label = line.label if numbers else f"*{line.label}*"
        rows.append([label, *line.attributes, *numbers] + [""] * (0 if numbers else width))
    return table([*printed.header, *(heading.label for heading in printed.headings)], rows)


def _best_row(lines: Sequence[Line], column: int, scope: str, heading: Heading) -> int | None:
    rows = [i for i, line in enumerate(lines) if line.numbers and line.scope == scope]
    scores = [lines[i].numbers[column].score for i in rows]
    best = best_index(scores, scope or heading.task, higher_is_better=heading.higher_is_better)
    return None if best is None else rows[best]
