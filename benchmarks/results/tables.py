"""Tables with numbered notes and bold best numbers, as markdown and LaTeX.

A page is a list of texts and tables. The texts, and the text in tables, are markdown; `plain`
escapes names in them. LaTeX output contains only the tables, each after its heading as a comment.
"""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.results.differences import Score, difference, holm, with_errors
from benchmarks.results.numbers import Number, common_notes
from benchmarks.results.records import DECLARED, STAND_IN_TEXTURE, Backbone
from benchmarks.words import grouped, plural
from transfer.encoders.architectures import network_words

DIGITS, RAISED = "0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"
RULE = (
    "**Bold**: best of its column and table, if significantly ahead of the second (p < 0.05). Two "
    "of our numbers are compared by a paired test on the same images: McNemar's exact test, or the "
    "paired standard error over images or resampled test sets. Other pairs are compared by the "
    "errors of both test sets and the run-to-run deviation, with Student's t for few seeds."
)
LATEX = {sign: f"\\{sign}" for sign in "$&_#%{}"}
LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"±": r"$\pm$", "–": "--", "−": "$-$", "→": r"$\rightarrow$", "✓": r"$\checkmark$"}
LATEX |= {"<": "$<$", ">": "$>$", "`": r"\textasciigrave{}"}
LATEX |= {"[": "{[}", "*": "{*}"}  # after a line break, they would be its arguments


@dataclass(kw_only=True)
class Cell:
    """One entry of a table: text, or a number (ours or published)."""

    text: str
    suffix: str = ""
    """Footnote marks, or text that a paper prints after the number."""
    score: Score | None = None
    files: tuple[str, ...] = ()
    """Paths of the records behind the score, in the results folder."""
    notes: Sequence[str] = ()
    """Notes on how the number was computed."""
    failures: Sequence[str] = ()
    """Notes on failed runs."""
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
    kind: Literal["", "ours", "secondary"] = ""
    """ours: the numbers were measured here. secondary: a metric that does not represent its task.

    It is the line's class on the page.
    """
    words: str = ""
    """Hidden search terms on the page."""


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
        head, *body = (" & ".join(c.latex() for c in row) + r" \\" for row in self.cells())
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

    def command(match: re.Match[str]) -> str:
        if digits := match["raised"]:
            return f"$^{{{digits.translate(str.maketrans(RAISED, DIGITS))}}}$"
        return LATEX.get(match["sign"], match["sign"])

    return re.sub(rf"(?P<raised>[{RAISED}]+)|\\?(?P<sign>[^\w\s]|_)", command, text)


def mark_best(
    cells: Iterable[Cell], task: str, *, higher_is_better: bool = True, after_holm: bool = False
) -> None:
    """Mark the best of these numbers if it is significantly better than the second.

    after_holm: it must be better than every other number, after Holm's correction. task: the task
    whose run-to-run deviation applies.
    """
    scored = [(cell.score, cell) for cell in cells if cell.score and cell.score.finite]
    scored.sort(key=lambda pair: pair[0].mean, reverse=higher_is_better)
    if len(scored) > 1:
        compared = with_errors([score for score, _ in (scored if after_holm else scored[:2])])
        differences = [difference(compared[0], score, task) for score in compared[1:]]
        scored[0][1].best = all(holm(diff.p for diff in differences))


class Notes(dict[str, int]):
    """Numbers of notes, from 1 on; equal notes have equal numbers."""

    def mark(self, notes: Iterable[str]) -> str:
        """Return the raised numbers of these notes, or an empty string."""
        numbers = sorted(self.setdefault(note, len(self) + 1) for note in notes)
        return "".join(f" {n}".translate(str.maketrans(DIGITS, RAISED)) for n in numbers)

    def list(self) -> str:
        """Return the notes as a numbered list."""
        return "\n".join(f"{number}. {escape(plain(note))}" for note, number in self.items())


def our_cell(number: Number, decimals: int = 1) -> Cell:
    """Return our number as an entry of a table."""
    score, notes, failures = number.score, number.notes, number.failures
    text = score.text(decimals) if score else number.text
    return Cell(text=text, score=score, files=number.files, notes=notes, failures=failures)


def mark_notes(lines: Sequence[Line], notes: Notes) -> list[str]:
    """Mark the notes of our rows, and return the notes common to all.

    Notes that apply to all numbers of a row are marked at its label.
    """
    shared_notes = common_notes(cell.notes for line in lines for cell in line.numbers if cell.score)
    for line in lines:
        row_notes = common_notes(cell.notes for cell in line.numbers if cell.score)
        row_notes = [note for note in row_notes if note not in shared_notes]
        line.texts = [line.texts[0] + notes.mark(row_notes), *line.texts[1:]]
        for cell in line.numbers:
            cell_notes = [note for note in cell.notes if note not in (*shared_notes, *row_notes)]
            cell.suffix = notes.mark([*cell_notes, *cell.failures])
    return shared_notes


def row_label(row: Number, rows: Iterable[Number]) -> str:
    """Return the name of a row's backbone.

    If two backbones have one name, the results folder follows, or the beginning of the weights'
    hash if both are in one folder. Further rows of a backbone name their conditions, too.
    """
    backbone = row.backbone
    all_backbones = {other.backbone.identity: other.backbone for other in rows}
    same_name = [other for other in all_backbones.values() if other.name == backbone.name]
    suffixes = [backbone.folder] if backbone.folder and len(same_name) > 1 else []
    if sum(other.folder == backbone.folder for other in same_name) > 1:
        suffixes.append(backbone.sha256[:8])
    suffixes += [row.conditions] if row.conditions else []
    return " ".join([backbone.label, *(f"({text})" for text in suffixes)])


def backbone_lines(numbers: Iterable[Number]) -> list[str]:
    """Return a list of the numbers' backbones, and a note on declared recipes."""
    groups = grouped((number.backbone.identity, number.backbone) for number in numbers)
    backbones = [group[0] for group in groups.values()]
    lines = [f"- {plain(f'{backbone.name}: {description(backbone)}')}" for backbone in backbones]
    return ["\n".join(lines), *declaration_notes(backbones)]


def declaration_notes(backbones: Iterable[Backbone]) -> list[str]:
    """Return the note on declared recipes, if a backbone has one."""
    if not any(backbone.declared for backbone in backbones):
        return []
    return [
        f"{DECLARED}: the file does not record its training. Its recipe is known from the "
        "published file with the same hash, or was declared by a user with `--trained-with` "
        "(not verified)."
    ]


def description(backbone: Backbone) -> str:
    """Return network, origin and weights of a backbone."""
    b = backbone
    texts = [network_words(b.arch, b.stem) if b.arch else "no result on this page"]
    if b.declared:
        texts.append(f"{b.source}; declared as {b.recipe}")
    elif b.recipe:
        texts.append(f"{b.method} ({b.recipe}), {b.epochs} epochs on {b.data}")
    else:
        texts.append(b.source)
    if b.heads:
        texts.append(f"heads {' '.join(b.heads)}")
    if b.norm_groups is not None:
        texts.append(f"{plural(b.norm_groups, 'group')} of shuffled batch norm")
    if b.texture == STAND_IN_TEXTURE:
        texts.append(f"textures by {b.texture} instead of style transfer: no reproduction")
    elif b.texture:
        texts.append(f"textures from a {b.texture}")
    if b.sha256:
        texts.append(f"weights {b.sha256[:12]}")
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


def without_escapes(text: str) -> str:
    """Undo `plain`."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


def csv_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()
