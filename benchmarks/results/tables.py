"""Tables with numbered notes and bold best numbers, as markdown and LaTeX.

A page is a list of texts and tables. The texts, and the text in tables, are markdown; `plain`
escapes names in them. LaTeX output contains only the tables, each after its heading as a comment.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.results.differences import Score, difference
from benchmarks.results.numbers import Number
from benchmarks.results.published import Column
from benchmarks.results.records import DECLARED, STAND_IN_TEXTURE, Run, grouped, plural
from transfer.encoders.architectures import network_words

RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
RULE = (
    "**Bold**: best of its column and table, if significantly ahead of the second (p < 0.05). Two "
    "of our numbers are compared by a paired test on the same images: McNemar's exact test, or the "
    "paired standard error over images or resampled test sets. Other pairs are compared by the "
    "errors of both test sets and the run-to-run deviation, with Student's t for few seeds."
)
LATEX = {sign: f"\\{sign}" for sign in "$&_#%{}"}
LATEX |= {"\\": r"\textbackslash ", "~": r"\textasciitilde ", "^": r"\textasciicircum "}
LATEX |= {"±": r"$\pm$", "–": "--", "−": "$-$", "→": r"$\rightarrow$", "✓": r"$\checkmark$"}
LATEX |= {"<": "$<$", ">": "$>$"}
ESCAPED_IN_LATEX = {"<": "$<$", ">": "$>$", "[": "{[}", "*": "{*}", "~": r"\textasciitilde{}"}
ESCAPED_IN_LATEX |= {"\\": r"\textbackslash{}", "`": r"\textasciigrave{}"}
ESCAPED_IN_LATEX |= {"^": r"\textasciicircum{}"} | {sign: f"\\{sign}" for sign in "$&_#%{}"}
"""Signs that are escaped in markdown."""


@dataclass(kw_only=True)
class Cell:
    """One entry of a table: text, or a number (ours or published)."""

    text: str
    suffix: str = ""
    """Footnote marks, or text that a paper prints after the number."""
    score: Score | None = None
    files: tuple[str, ...] = ()
    """Paths of the records behind the score, in the results folder."""
    best: bool = False
    """It is significantly the best of its column and section."""
    is_title: bool = False
    """The title of the lines below it."""

    def markdown(self) -> str:
        """Return the cell on one line, with escaped bars."""
        mark = "**" if self.best else "*" if self.is_title else ""
        return escape(f"{mark}{self.text}{mark}{self.suffix}")

    def latex(self) -> str:
        """Return the cell in LaTeX, with bold text and raised marks."""
        text, suffix = latex_text(self.text), latex_text(self.suffix)
        command = r"\textbf" if self.best else r"\textit" if self.is_title else ""
        return (f"{command}{{{text}}}" if command else text) + suffix


@dataclass(kw_only=True)
class Line:
    """One row of a table, or a title row (without numbers)."""

    texts: Sequence[str]
    numbers: Sequence[Cell] = ()
    scope: str = ""
    """Task of the row's section; the best number is marked per scope."""
    ours: bool = False
    """The numbers were measured here."""
    is_secondary: bool = False
    """A metric that does not represent its task."""

    @property
    def kind(self) -> str:
        """Return the class of the line on the page."""
        return "ours" if self.ours else "secondary" if self.is_secondary else ""


@dataclass(kw_only=True)
class Grid:
    """A table: text columns, number columns and lines."""

    texts: Sequence[str]
    numbers: Sequence[str] = ()
    lines: Sequence[Line] = ()
    num_left: int = 1
    """Number of left-aligned columns."""

    def cells(self) -> list[list[Cell]]:
        """Return the cells of all rows, the header's first."""
        rows = [[Cell(text=text) for text in (*self.texts, *self.numbers)]]
        for line in self.lines:
            row = [*(Cell(text=text) for text in line.texts), *line.numbers]
            if missing := len(rows[0]) - len(row):
                row = [Cell(text=line.texts[0], is_title=True)]
                row += [Cell(text="") for _ in range(missing)]
            rows.append(row)
        return rows

    def markdown(self) -> str:
        """Return a padded table."""
        rows = [[cell.markdown() for cell in row] for row in self.cells()]
        widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
        rule = ["-" * (width - 1) for width in widths]
        rule = [f":{d}" if i < self.num_left else f"{d}:" for i, d in enumerate(rule)]
        padded = [
            " | ".join(
                text.ljust(width) if i < self.num_left else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in (rows[0], rule, *rows[1:])
        ]
        return "\n".join(f"| {line} |" for line in padded)

    def latex(self) -> str:
        """Return a tabular with the rules of booktabs."""
        lines = [" & ".join(cell.latex() for cell in row) + r" \\" for row in self.cells()]
        # [ and * at the beginning would be arguments of the line break before it
        head, *body = (re.sub(r"^[\[*]", r"{\g<0>}", line) for line in lines)
        columns = "l" * self.num_left + "r" * (len(self.texts) + len(self.numbers) - self.num_left)
        start = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule"]
        return "\n".join([*start, *body, r"\bottomrule", r"\end{tabular}", ""])


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], *, num_left: int = 1) -> Grid:
    """Return a table of texts; the first `num_left` columns are left-aligned."""
    return Grid(texts=header, lines=[Line(texts=row) for row in rows], num_left=num_left)


Part = str | Grid
"""A text or a table; empty texts are not printed."""
Page = list[Part]


def markdown(page: Page) -> str:
    """Return a page as markdown."""
    texts = (element if isinstance(element, str) else element.markdown() for element in page)
    return "\n\n".join(element for element in texts if element) + "\n"


def latex(page: Page) -> str:
    """Return the tables of a page in LaTeX, with commented headings."""
    tables, heading = [], ""
    for element in page:
        if isinstance(element, Grid):
            tables.append(f"% {heading}\n{element.latex()}")
        elif headings := re.findall(r"^#+ (.*)", element, re.MULTILINE):
            heading = headings[-1]
    return "\n".join(tables)


def latex_text(text: str) -> str:
    """Convert markdown to LaTeX: escapes, special signs and raised digits."""
    signs = rf"(?P<raised>[{RAISED}]+)|\\(?P<escaped>[!-/:-@\[-`{{-~])|(?P<sign>.)"

    def command(match: re.Match[str]) -> str:
        if digits := match["raised"]:
            return f"$^{{{''.join(str(RAISED.index(digit)) for digit in digits)}}}$"
        if sign := match["escaped"]:
            return ESCAPED_IN_LATEX.get(sign, sign)
        return LATEX.get(match["sign"], match["sign"])

    return re.sub(signs, command, text)


def mark_best(lines: Iterable[Line], columns: Sequence[Column]) -> None:
    """Mark the best number of each column and scope, if significant.

    The run-to-run deviation is taken from the scope's or the column's task.
    """
    for scope, scope_lines in grouped((line.scope, line) for line in lines if line.numbers).items():
        for index, column in enumerate(columns):
            cells = [line.numbers[index] for line in scope_lines]
            scored = [(cell.score, cell) for cell in cells if cell.score]
            scored.sort(key=lambda pair: pair[0].mean, reverse=column.higher_is_better is not False)
            if len(scored) > 1:
                (best, cell), (second, _), *_ = scored
                cell.best = difference(best, second, scope or column.task).is_significant


class Notes(dict[str, int]):
    """Numbers of notes, from 1 on; equal notes have equal numbers."""

    def mark(self, notes: Iterable[str]) -> str:
        """Return the raised numbers of these notes, or an empty string."""
        numbers = sorted(self.setdefault(note, len(self) + 1) for note in notes)
        return "".join(f" {''.join(RAISED[int(digit)] for digit in str(n))}" for n in numbers)

    def list(self) -> str:
        """Return the notes as a numbered list."""
        return "\n".join(f"{number}. {escape(plain(note))}" for note, number in self.items())


class OurRow(NamedTuple):
    """A row of ours before its notes are numbered."""

    label: str
    numbers: Sequence[Number]
    """The number of each column."""
    texts: Sequence[str] = ()
    scope: str = ""


def our_lines(
    rows: Sequence[OurRow], notes: Notes, decimals: Sequence[int]
) -> tuple[list[Line], list[str]]:
    """Return our rows as lines, and the notes common to all.

    Notes that apply to all numbers of a row are marked at its label.
    """
    shared_notes = _shared_notes(number for row in rows for number in row.numbers)
    lines = []
    for row in rows:
        row_notes = [note for note in _shared_notes(row.numbers) if note not in shared_notes]
        label, cells = plain(row.label) + notes.mark(row_notes), []
        for number, digits in zip(row.numbers, decimals, strict=True):
            number_notes = [
                note for note in number.notes if note not in (*shared_notes, *row_notes)
            ]
            text = number.score.text(digits) if number.score else number.text
            marks = notes.mark([*number_notes, *number.failures])
            cells.append(Cell(text=text, suffix=marks, score=number.score, files=number.files))
        texts = [label, *row.texts]
        lines.append(Line(texts=texts, numbers=cells, scope=row.scope, ours=True))
    return lines, shared_notes


def _shared_notes(numbers: Iterable[Number]) -> list[str]:
    """Return the notes that every number has, in order."""
    notes = [number.notes for number in numbers if number.score]
    return (
        [note for note in notes[0] if all(note in number_notes for number_notes in notes)]
        if notes
        else []
    )


def our_grid(
    rows: Sequence[OurRow], headings: Iterable[tuple[str, str]], notes: Notes
) -> tuple[Grid, list[str]]:
    """Return a table of our rows, and the notes common to all.

    headings: label and task of each column.
    """
    columns = [Column(key="", label=text, task=t, higher_is_better=True) for text, t in headings]
    lines, shared_notes = our_lines(rows, notes, [1] * len(columns))
    mark_best(lines, columns)
    labels = [column.label for column in columns]
    return Grid(texts=["backbone"], numbers=labels, lines=lines), shared_notes


def row_label(row: Number, rows: Iterable[Number]) -> str:
    """Return the name of a row's backbone.

    If two backbones have one name, the results folder follows, or the beginning of the weights'
    hash if both are in one folder. Further rows of a backbone name their conditions, too.
    """
    run = row.run
    same_name = {
        number.run.identity: number.run for number in rows if number.run.backbone == run.backbone
    }
    in_folder = [number for number in same_name.values() if number.folder == run.folder]
    suffixes = [run.folder] if run.folder and len(same_name) > 1 else []
    suffixes += [run.sha256[:8]] if len(in_folder) > 1 else []
    suffixes += [row.conditions] if row.conditions else []
    return " ".join([run.label, *(f"({text})" for text in suffixes)])


def backbone_lines(runs: Iterable[Run]) -> list[str]:
    """Return a list of the backbones, and a note on declared recipes."""
    backbones = [group[0] for group in grouped((run.identity, run) for run in runs).values()]
    lines = [f"- {plain(f'{run.backbone}: {description(run)}')}" for run in backbones]
    return ["\n".join(lines), *declaration_notes(backbones)]


def declaration_notes(runs: Iterable[Run]) -> list[str]:
    """Return the note on declared recipes, if a backbone has one."""
    if not any(run.declared for run in runs):
        return []
    return [
        f"{DECLARED}: the file does not record its training. Its recipe is known from the "
        "published file with the same hash, or was declared by a user with `--trained-with` "
        "(not verified)."
    ]


def description(run: Run) -> str:
    """Return network, origin and weights of a backbone."""
    texts = [network_words(run.arch, run.stem) if run.arch else "no result on this page"]
    if run.declared:
        texts.append(f"{run.source}; declared as {run.recipe}")
    elif run.recipe:
        texts.append(f"{run.method} ({run.recipe}), {run.epochs} epochs on {run.data}")
    else:
        texts.append(run.source)
    if run.heads:
        texts.append(f"heads {' '.join(run.heads)}")
    if run.norm_groups is not None:
        texts.append(f"{plural(run.norm_groups, 'group')} of shuffled batch norm")
    if run.texture == STAND_IN_TEXTURE:
        texts.append(f"textures by {run.texture} instead of style transfer: no reproduction")
    elif run.texture:
        texts.append(f"textures from a {run.texture}")
    if run.sha256:
        texts.append(f"weights {run.sha256[:12]}")
    return "; ".join(filter(None, texts))


def escape(text: str) -> str:
    """Return the text on one line, with escaped bars."""
    return " ".join(text.replace("|", "\\|").split())


MARKUP = re.compile(
    r"[*`\[\]~$]"  # emphasis, code, links, strikethrough, formulas
    r"|_(?![^\W_])|(?<![^\W_])_"  # emphasis, but not snake_case
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)|\\(?=[!-/:-@\[-`{-~])"  # HTML, entities, escapes
    r"|^(?:[#>+-]|=+$)|(?<=^\d)[.)](?= )"  # headings, quotes and lists in an item of a list
)
"""Signs in a text that markdown would not show as they are."""


def plain(text: str) -> str:
    """Escape markdown in a text, such as the name of a backbone."""
    return MARKUP.sub(lambda match: f"\\{match[0]}", text)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as the text of a CSV file."""
    text = io.StringIO()
    safe_rows = [[csv_cell(value) for value in row] for row in (header, *rows)]
    csv.writer(text, lineterminator="\n").writerows(safe_rows)
    return text.getvalue()


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def csv_cell(text: str) -> str:
    """Return a text for a CSV file.

    If a spreadsheet would interpret it as a formula, it gets a leading quote.
    """
    computes = text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if computes and not NUMBER.fullmatch(text) else text
