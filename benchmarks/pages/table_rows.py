"""Lines of numbers with raised notes, the best of each column bold, as padded markdown tables.

entries.py makes the entries of a line from records.
"""

import csv
import io
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.pages.differences import Score, difference
from benchmarks.pages.entries import Entry
from benchmarks.pages.published import Column
from benchmarks.pages.records import DECLARED, STAND_IN_TEXTURE, Model
from transfer.convert.architectures import network_words

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
RULE = (
    "**Bold**: best of its column and table, if surely ahead of the second (p < 0.05): by a paired "
    "test on the same images where both are ours (McNemar's exact test, or the paired standard "
    "error over images or resampled test sets), else by the errors of both test sets and from run "
    "to run; of few seeds, those are Student's."
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row as it will be printed; without numbers, the title of those that follow."""

    label: str
    attributes: tuple[str, ...] = ()
    numbers: tuple[Entry, ...] = ()
    scope: str = ""
    """Task of the line's section; the best number is chosen among the lines of one scope."""
    ours: bool = False
    """The numbers were measured here."""


@dataclass(frozen=True)
class PrintedTable:
    """A table as it will be printed: columns of text, columns of numbers, rows."""

    header: tuple[str, ...]
    columns: tuple[Column, ...]
    """Columns of numbers."""
    lines: tuple[Line, ...]
    notes: str = ""
    """Notes that hold for all our rows."""
    title: str = ""
    """Conditions of rows that stand apart; empty for the table with the paper's rows."""
    legend: tuple[str, ...] = ()
    """Meaning of the signs."""

    def markdown(self) -> str:
        """Return the table as markdown; the best numbers are bold."""
        width = len(self.header) - 1 + len(self.columns)
        rows = []
        for line in self.lines:
            numbers = [
                (f"**{number.text}**" if number.best else number.text) + number.after
                for number in line.numbers
            ]
            label = line.label if numbers else f"*{line.label}*"
            rows.append([label, *line.attributes, *numbers] + [""] * (0 if numbers else width))
        return table([*self.header, *(column.label for column in self.columns)], rows)


def with_best(lines: Sequence[Line], columns: Sequence[Column]) -> tuple[Line, ...]:
    """Return the lines with the best number of each column and scope marked.

    The errors of a line's scope, or else of the column's task, decide.
    """
    best: set[tuple[int, int]] = set()
    for scope in {line.scope for line in lines}:
        rows = [i for i, line in enumerate(lines) if line.numbers and line.scope == scope]
        for j, column in enumerate(columns):
            scores = [lines[i].numbers[j].score for i in rows]
            higher = column.higher_is_better is not False
            leader = _best_index(scores, scope or column.task, higher_is_better=higher)
            best |= set() if leader is None else {(rows[leader], j)}
    return tuple(
        replace(line, numbers=tuple(replace(n, best=(i, j) in best) for j, n in numbered))
        for i, line in enumerate(lines)
        for numbered in [enumerate(line.numbers)]
    )


class Notes:
    """Numbered notes; the same text gets the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, texts: Iterable[str]) -> str:
        """Return the raised numbers of these notes, each after a space; empty for no note."""
        numbers = sorted(self._numbers.setdefault(t, len(self._numbers) + 1) for t in texts)
        return "".join(" " + str(number).translate(SUPERSCRIPTS) for number in numbers)

    @property
    def texts(self) -> list[str]:
        """Return the notes in the order of their numbers, which start at 1."""
        return list(self._numbers)

    def lines(self) -> list[str]:
        """Return the notes as a numbered list."""
        return [f"{number}. {escape(plain(text))}" for text, number in self._numbers.items()]


def shared_notes(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the notes that every number has, in order."""
    rows = [entry.notes for entry in entries if entry.score]
    return tuple(n for n in rows[0] if all(n in row for row in rows)) if rows else ()


def notes_line(protocols: str, everywhere: Iterable[str]) -> str:
    """Return a table's protocols and the notes that hold for all of it, as one line."""
    return "; ".join((f"protocol {protocols}", *everywhere))


def backbone_line(
    label: str,
    entries: Sequence[Entry],
    everywhere: Sequence[str],
    notes: Notes,
    *,
    decimals: Sequence[int],
    attributes: Sequence[str] = (),
) -> Line:
    """Return one of our rows; notes that hold for all its numbers are marked at its name.

    everywhere: notes that hold for the whole table, and are not marked.
    """
    of_row = [note for note in shared_notes(entries) if note not in everywhere]
    label = plain(label) + notes.mark(of_row)
    numbers = []
    for entry, digits in zip(entries, decimals, strict=True):
        own = [note for note in entry.notes if note not in (*everywhere, *of_row)]
        text = entry.score.text(digits) if entry.score else entry.text
        numbers.append(replace(entry, text=text, after=notes.mark([*own, *entry.failures])))
    return Line(label=label, attributes=tuple(attributes), numbers=tuple(numbers), ours=True)


def our_table(
    rows: Sequence[tuple[str, Sequence[Entry]]], headings: Iterable[tuple[str, str]], notes: Notes
) -> tuple[str, tuple[str, ...]]:
    """Return a table of labelled rows of ours, to one decimal, and the notes that all share.

    headings: label and task of each column.
    """
    columns = tuple(
        Column(key=label, label=label, task=task, higher_is_better=True) for label, task in headings
    )
    everywhere = shared_notes(entry for _, row in rows for entry in row)
    decimals = [1] * len(columns)
    lines = [backbone_line(label, row, everywhere, notes, decimals=decimals) for label, row in rows]
    printed = PrintedTable(("backbone",), columns, with_best(lines, columns))
    return printed.markdown(), everywhere


def row_label(model: Model, rows: Sequence[Model]) -> str:
    """Return the name of a row's backbone.

    If two backbones have one name, the beginning of the weights' hash follows. Further rows of a
    backbone name their conditions too.
    """
    twins = len({other.sha256 for other in rows if other.name == model.name}) > 1
    apart = [model.sha256[:8]] * twins + [model.other_conditions] * bool(model.other_conditions)
    return " ".join([model.name + DECLARED * model.declared, *(f"({words})" for words in apart)])


def backbones_of(models: Iterable[Model]) -> list[Model]:
    """Return each backbone once, however many rows it has, in order."""
    return sorted({replace(model, other_conditions="") for model in models})


def backbone_lines(models: Sequence[Model]) -> list[str]:
    """Return a list of the backbones, and the meaning of the sign of declared recipes if used."""
    lines = [f"- {plain(f'{model.name}: {description(model)}')}" for model in models]
    return ["\n".join(lines), *declaration_notes(models)]


def declaration_notes(models: Iterable[Model]) -> list[str]:
    """Return the meaning of the sign of declared recipes, if one of the backbones has it."""
    if not any(model.declared for model in models):
        return []
    return [
        f"{DECLARED}: the file does not say how it was made; its recipe is what a user declared "
        "with `--as`, and nothing here has checked it."
    ]


def description(model: Model) -> str:
    """Return network, origin and weights of a backbone."""
    network = network_words(model.arch, model.stem) if model.arch else "no result on this page"
    origin = model.source
    if model.recipe:
        origin = f"{model.method} ({model.recipe}), {model.epochs} epochs on {model.data}"
        if model.declared:
            origin = f"{model.source}; declared as {model.recipe}"
    if model.heads:
        origin += f"; heads {' '.join(model.heads)}"
    if model.norm_groups is not None:
        many = "s" if model.norm_groups != 1 else ""
        origin += f"; {model.norm_groups} group{many} of shuffled batch norm"
    if model.texture == STAND_IN_TEXTURE:
        origin += f"; textures by {model.texture} instead of style transfer: no reproduction"
    elif model.texture:
        origin += f"; textures from a {model.texture}"
    weights = f"weights {model.sha256[:12]}" if model.sha256 else ""
    return "; ".join(filter(None, [network, origin, weights]))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a padded markdown table; the first `left` columns are text, the others numbers."""
    texts = [[escape(text) for text in line] for line in (header, *rows)]
    widths = [max(3, *(len(line[i]) for line in texts)) for i in range(len(header))]
    rule = [":" + "-" * (w - 1) if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join(_line(line, widths, left) for line in (texts[0], rule, *texts[1:]))


def _line(texts: Sequence[str], widths: Sequence[int], left: int) -> str:
    padded = [
        text.ljust(width) if i < left else text.rjust(width)
        for i, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def aligned(rows: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Return lines with the columns of these places at the left and the others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def first_lines(lines: Sequence[str], most: int, rest: str) -> list[str]:
    """Return the first lines, and how many more there are with words on these."""
    more = len(lines) - most
    return [*lines[:most], *[f"... and {more} {rest}"] * (more > 0)]


def escape(text: str) -> str:
    """Return the text on one line, with its bars escaped, so that it cannot end a table cell."""
    return " ".join(text.replace("|", "\\|").split())


MARKUP = re.compile(
    r"[*`\[\]~$]"  # emphasis, code, links, strikethrough, formulas
    r"|_(?![^\W_])|(?<![^\W_])_"  # emphasis, but not snake_case
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\\(?=[!-/:-@\[-`{-~])"  # HTML, entities, escapes
    r"|^(?:[#>+-]|=+$)|(?<=^\d)[.)](?= )"  # headings, quotes and lists in an item of a list
)
"""Signs in a text that markdown would not show as they are."""


def plain(text: str) -> str:
    """Return markdown that shows a text as it is, such as the name of a backbone."""
    return MARKUP.sub(lambda match: f"\\{match[0]}", text)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as the text of a CSV file."""
    text = io.StringIO()
    safe_rows = [[csv_cell(value) for value in row] for row in (header, *rows)]
    csv.writer(text, lineterminator="\n").writerows(safe_rows)
    return text.getvalue()


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def csv_cell(text: str) -> str:
    """Return a text for a CSV file, with a leading quote if a spreadsheet would compute it."""
    computes = text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if computes and not NUMBER.fullmatch(text) else text


def _best_index(scores: Sequence[Score | None], task: str, *, higher_is_better: bool) -> int | None:
    """Return the index of the best score if it is surely ahead of the second, else None."""
    known = [(score, i) for i, score in enumerate(scores) if score is not None]
    ranked = sorted(known, key=lambda pair: pair[0].mean, reverse=higher_is_better)
    if len(ranked) < 2:
        return None
    (best, index), (second, _) = ranked[:2]
    return index if difference(best, second, task).sure else None
