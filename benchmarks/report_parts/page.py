"""The HTML report as one self-contained file, section by section."""

import base64
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from benchmarks.drawing.files import metadata_of
from benchmarks.report_parts.compare import compared
from benchmarks.report_parts.document import (
    Fold,
    Gallery,
    Image,
    Links,
    Part,
    Sheet,
    html,
)
from benchmarks.report_parts.evaluated import evaluated_parts
from benchmarks.report_parts.pretraining import pretraining_parts
from benchmarks.report_parts.requested import not_run
from benchmarks.report_parts.tasks import task_folds
from benchmarks.results.chosen_table import ALL_TASKS, FORMATS, tables_of_groups
from benchmarks.results.contents import Contents, csv_rows
from benchmarks.results.differences import SIGNS
from benchmarks.results.explanation import explain, file_of
from benchmarks.results.numbers import Number
from benchmarks.results.paper_page import PaperTables
from benchmarks.results.records import FIGURES, TABLES, Run, count_tasks, grouped, plural
from benchmarks.results.tables import Cell, Grid, Line, plain
from benchmarks.results.verdicts import Pair

PACKAGE = "benchmarks.report_parts"
MAX_FIGURES, MAX_VIEWS, MAX_TASKS = 4_000_000, 2_000_000, 2_500_000
"""Maximum size of the images in a section, in characters.

With these limits, the report is small enough for e-mail.
"""
RECIPE = r"recipe: [^;\n]*[^;\n.]"
"""Pattern of notes on recipe settings that differ from the paper's."""
MEANINGS = {
    "reproduced": "the interval contains 0 and ends within 1 point of 0",
    "inconclusive": "the interval contains 0, but is wider",
    "above": "the interval lies above 0",
    "below": "the interval lies below 0",
    "no verdict": "a cited number, unclear origin or unknown errors; see the paper's table",
}


class Section(NamedTuple):
    """A section of the report with its anchor."""

    id: str
    title: str
    parts: Sequence[Part]


class Explanations:
    """Explanations of all records except snapshots, and their addresses."""

    def __init__(self, contents: Contents) -> None:
        """Explain every record; equal sections are stored once."""
        self.records: list[dict[str, Any]] = []
        self.sections: dict[object, int] = {}
        self.addresses: dict[str, str] = {}
        taken: set[str] = set()
        results_folders = (contents.folder, *contents.further_folders)
        folders = {
            str(path): "RESULTS"
            for folder in results_folders
            for path in (folder.absolute(), folder)
        }
        for run in contents.results.succeeded:
            short = f"{run.backbone}/{run.key}"
            names = [short, f"{short}.{run.schedule}.seed{run.seed}", run.file]
            address = next(name for name in names if name not in taken)
            taken.add(address)
            self.addresses[run.file] = address
            section_ids, hidden = [], _hidden_folders(run, folders)
            for title, lines in explain(run).items():
                texts = tuple(tuple(_without(hidden, text) for text in line) for line in lines)
                section_ids.append(self.sections.setdefault((title, texts), len(self.sections)))
            title = f"{run.label} on {run.task}, seed {run.seed}"
            self.records.append({"address": address, "title": title, "sections": section_ids})

    @property
    def content(self) -> dict[str, Any]:
        """Return all explanations as input of the report's script."""
        return {"records": self.records, "sections": [*self.sections]}

    def address(self, files: Iterable[str]) -> str:
        """Return the address of records, starting with "#", or an empty text."""
        quoted = [
            quote(self.addresses[file], safe="/@") for file in files if file in self.addresses
        ]
        return f"#{','.join(quoted)}" if quoted else ""


def _hidden_folders(run: Run, folders: Mapping[str, str]) -> dict[str, str]:
    """Return replacements for the absolute paths in an explanation."""
    checkpoint = Path(file_of(run.record))
    hidden = {str(checkpoint): checkpoint.name} if checkpoint.is_absolute() else {}
    return hidden | dict(folders)


def _without(hidden: Mapping[str, str], text: str) -> str:
    for folder, replacement in hidden.items():
        if (
            folder in text
        ):  # match complete paths, since a folder may have a common name such as "out"
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])", replacement, text)
    return text


def report_page(contents: Contents, runs: Sequence[Path] = ()) -> str:
    """Return the HTML report of results folders; all values are escaped.

    runs: folders of pre-training runs. Their logs are drawn together with those stored in the
    results.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    folder, results = contents.folder, contents.results
    explanations = Explanations(contents)
    comparison = compared(contents.numbers, explanations.address)
    reasons = [{*run.reasons.texts} for run in results.succeeded]
    identities = {run.identity for run in results.runs}
    tasks = task_folds(folder, contents.numbers, contents.snapshots)
    pretraining = pretraining_parts(folder, runs)
    remaining = not_run(folder, results.runs)
    sections = [
        Section("chosen", "Tables for your paper", _chosen_parts(contents.numbers)),
        Section("beside", "Differences from the papers", _against(contents.pairs)),
        Section("tables", "The papers’ tables", _paper_parts(contents.papers_tables)),
        Section("numbers", "All numbers", _all_numbers(contents)),
        Section("tasks", "Task by task", _thinned(tasks, MAX_TASKS)),
        Section("pretraining", "Pre-training", _thinned(pretraining, MAX_VIEWS)),
        Section(
            "evaluated",
            "Evaluated checkpoints",
            evaluated_parts(results, contents.numbers, remaining),
        ),
        Section("figures", "The papers’ figures", _thinned(_figures(folder), MAX_FIGURES)),
    ]
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates = files(PACKAGE) / "templates"
    verdicts = [pair.verdict for pair in contents.pairs]
    return environment.get_template("page.html.j2").render(
        title=plural(len(identities), "checkpoint") if identities else "No results yet",
        badges=sorted(set.intersection(*reasons)) if reasons else [],
        comparison=comparison,
        num_results=plural(len(results.succeeded), "result"),
        num_tasks=count_tasks({run.key for run in results.succeeded}),
        num_failed=sum(bool(run.failure) for run in results.runs),
        num_unsupported=sum(group.num_cells for group in remaining if group.is_unsupported),
        num_missing=sum(group.num_cells for group in remaining if not group.is_unsupported),
        verdicts={
            verdict_word: verdicts.count(verdict_word)
            for verdict_word in SIGNS
            if verdict_word in verdicts
        },
        signs=SIGNS,
        sections=[section for section in sections if section.parts],
        html=lambda part: html(part, explanations.address),
        explanations=explanations.content,
        comparison_content=comparison and comparison.content,
        # the only text that is not escaped: files of this package
        style=Markup((templates / "report.css").read_text(encoding="utf-8")),
        script=Markup((templates / "report.js").read_text(encoding="utf-8")),
    )


def _against(pairs: Sequence[Pair]) -> list[Part]:
    """Return all numbers that both we and a paper have, with verdicts."""
    if not pairs:
        return []
    tasks = {pair.printed.task: None for pair in pairs}
    lines = [
        Line(
            texts=[
                pair.printed.task,
                plain(pair.ours.label),
                f"{pair.printed.where}: {pair.printed.row.label}, {pair.printed.label}",
            ],
            numbers=[
                Cell(text=pair.ours.score.text(2), score=pair.ours.score, files=pair.ours.files),
                Cell(text=f"{pair.printed.value:g}"),
                Cell(text=f"{pair.difference.points:+.2f}".replace("-", "−")),
                Cell(text=_interval(pair)),
                Cell(text=f"{SIGNS[pair.verdict]} {pair.verdict}"),
            ],
        )
        for task in tasks
        for pair in pairs
        if pair.printed.task == task and pair.ours.score
    ]
    verdicts = [pair.verdict for pair in pairs]
    legend = [
        f"- {SIGNS[verdict]} **{verdict}** {MEANINGS[verdict]}: {verdicts.count(verdict)}"
        for verdict in SIGNS
        if verdict in verdicts
    ]
    header = ["task", "checkpoint", "published"]
    numbers = ["ours", "paper", "diff.", "95 % interval", "verdict"]
    return [
        "Ours minus the published number, in points, with the 95 % interval of the difference: "
        "errors of both test sets and the run-to-run deviation.",
        "\n".join(legend),
        Sheet(
            "Differences from the papers",
            Grid(texts=header, numbers=numbers, lines=lines),
            id="papers",
        ),
    ]


def _chosen_parts(numbers: Iterable[Number]) -> list[Part]:
    """Return a table of checkpoints and tasks for each group of tasks."""
    folds: list[Part] = []
    tables = tables_of_groups(numbers)
    for heading, chosen_table in tables.items():
        table = chosen_table.table
        texts = {str(form): chosen_table.text(form) for form in FORMATS}
        sheet = Sheet(heading, table, id=f"chosen-{len(folds)}", texts=texts)
        notes = "\n".join(f"- {plain(note)}" for note in chosen_table.notes[1:])
        if heading == ALL_TASKS:
            notes = "For notes on its columns, see the tables above."
        count = plural(len(table.lines), "checkpoint")
        tasks = count_tasks(chosen_table.keys)
        folds.append(Fold(heading, tasks, count, [sheet, notes], is_open=not folds))
    command = "`python -m benchmarks.tables --name A B --tasks a,b --format latex`"
    text = "All checkpoints of this report. To print a table of selected checkpoints and tasks, "
    text += f"run {command}."
    rules = dict.fromkeys(plain(chosen_table.notes[0]) for chosen_table in tables.values())
    return [text, *rules, *folds] if folds else []


def _interval(pair: Pair) -> str:
    return pair.difference.interval_text().replace("-", "−") if pair.difference.is_known else "–"


def _paper_parts(papers_tables: Sequence[PaperTables]) -> list[Part]:
    """Return the papers' tables with our rows, shared notes, and links."""
    papers_tables = [
        tables._replace(
            tables=[table._replace(grid=_measured(table.grid)) for table in tables.tables]
        )
        for tables in papers_tables
    ]
    with_ours = [tables for tables in papers_tables if _num_ours(tables)]
    names = grouped(
        (line, tables.name) for tables in with_ours for line in dict.fromkeys(_legend_lines(tables))
    )
    repeated = {line: values for line, values in names.items() if len(values) > 1}
    elements: list[Part] = _recipes_once([_paper_fold(tables, repeated) for tables in with_ours])
    if repeated:
        lines = [f"- {'; '.join(values)}: {line}" for line, values in repeated.items()]
        text = "\n".join(lines).replace("→ rows", "our rows")
        elements += ["### Shared notes", text]
    without_ours = grouped(
        (
            tables.paper.name,
            (tables.table.number, f"../{TABLES}/{tables.table.file_name}", tables.table.title),
        )
        for tables in papers_tables
        if not _num_ours(tables)
    )
    if without_ours:
        elements += [
            "### Tables without our rows",
            *(Links(*entry) for entry in without_ours.items()),
        ]
    return elements


def _measured(grid: Grid) -> Grid:
    """Return a table without our empty rows, and without empty groups."""
    lines: list[Line] = []
    for line in reversed(grid.lines):
        is_empty = line.ours and all(cell.text in ("not run", "") for cell in line.numbers)
        is_last_title = not line.numbers and (not lines or not lines[-1].numbers)
        if not is_empty and not is_last_title:
            lines.append(line)
    return replace(grid, lines=lines[::-1])


def _num_ours(tables: PaperTables) -> int:
    return sum(table.num_ours for table in tables.tables)


def _legend_lines(tables: PaperTables) -> list[str]:
    return [line for table in tables.tables for line in table.legend]


def _paper_fold(tables: PaperTables, shared_notes: Container[str]) -> Fold:
    """Return a paper's table with our rows.

    elsewhere: notes that are not repeated in it.
    """
    paper, table, paper_tables, notes = tables
    elements: list[Part] = [f"{paper.title}, {paper.venue}, arXiv:{paper.arxiv}"]
    for paper_table in paper_tables:
        if paper_table.grid.lines:
            title = tables.name + (f": {paper_table.title}" if paper_table.title else "")
            legend = "\n".join(
                f"- {line}" for line in paper_table.legend if line not in shared_notes
            )
            elements += [Sheet(title, paper_table.grid, kind="numbers"), paper_table.notes, legend]
    elements.append(notes.list())
    elements = [
        element.replace("→ rows", "our rows") if isinstance(element, str) else element
        for element in elements
    ]
    count = f"{plural(_num_ours(tables), 'row')} with our results"
    return Fold(tables.name, table.title, count, elements, is_open=True)


def _recipes_once(folds: Iterable[Fold]) -> list[Part]:
    """Shorten repeated notes on the recipes of detectors and segmenters."""
    tables: dict[str, str] = {}
    shortened: list[Part] = []
    for fold in folds:

        def short(match: re.Match[str], name: str = fold.name) -> str:
            first = tables.get(match[0])
            tables.setdefault(match[0], name)
            return f"recipe: as in {first}" if first else match[0]

        elements = [re.sub(RECIPE, short, p) if isinstance(p, str) else p for p in fold.parts]
        shortened.append(fold._replace(parts=elements))
    return shortened


def _all_numbers(contents: Contents) -> list[Part]:
    """Return a row per record and metric, and shared values."""
    rows = [*csv_rows(contents)]
    if not rows:
        return ["No numbers yet."]
    values = {name: {row[name] for row in rows} for name in ("schedule", "seed", "data")}
    varied = [name for name, distinct in values.items() if len(distinct) > 1]
    shared = [f"{name} {distinct.pop()}" for name, distinct in values.items() if name not in varied]
    text = "One row per record and metric, the same as `results.csv`."
    text += f" All: {', '.join(shared)}." if shared else ""
    runs = {run.file: run for run in contents.results.succeeded}
    lines = []
    for row in rows:
        run = runs[row["record"]]
        verdict = row["verdict"] or ("–" if row["comparable"] else "none")
        cells = [row["protocol"], row["engine"], *(str(row[name]) for name in varied), verdict]
        value = Cell(text=f"{row['value']:.2f}", files=(run.file,))
        lines.append(
            Line(
                texts=[plain(str(text)) for text in (row["backbone"], run.key, row["metric"])],
                numbers=[value, *(Cell(text=plain(text)) for text in cells)],
                is_secondary=not row["primary"],
            )
        )
    grid = Grid(
        texts=["checkpoint", "task", "metric"],
        numbers=["value", "protocol", "engine", *varied, "verdict"],
        lines=lines,
    )
    families = [runs[row["record"]].heading for row in rows]
    return [text, Sheet("Every number", grid, id="all-numbers", families=families)]


def _figures(folder: Path) -> list[Part]:
    """Return the SVG files of the results.

    They are embedded as images, since browsers run no scripts of images.
    """
    images = []
    for path in sorted((folder / FIGURES).rglob("*.svg")):
        source = f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
        title = metadata_of(path).get("title") or path.stem.replace("_", " ")
        images.append(Image(source, title))
    return [Gallery("", images, kind="gallery")] if images else []


def _thinned(elements: Sequence[Part], limit: int) -> list[Part]:
    """Return the sections with evenly spaced images within a size limit."""
    size = sum(len(image.source) for gallery in _galleries(elements) for image in gallery.images)
    step = -(-size // limit)
    return [_with_every(element, step) for element in elements] if step > 1 else [*elements]


def _galleries(elements: Iterable[Part]) -> list[Gallery]:
    flat = [
        inner
        for element in elements
        for inner in (element.parts if isinstance(element, Fold) else [element])
    ]
    return [inner for inner in flat if isinstance(inner, Gallery)]


def _with_every(element: Part, step: int) -> Part:
    """Return a section element with every step-th image of its galleries."""
    if isinstance(element, Fold):
        return element._replace(parts=[_with_every(inner, step) for inner in element.parts])
    if not isinstance(element, Gallery):
        return element
    images = element.images[::step]
    num_omitted = len(element.images) - len(images)
    note = f"{element.note} {num_omitted} more are omitted to limit the size.".strip()
    return element._replace(images=images, note=note)
