"""The whole report: its sections in order, as one self-contained file."""

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
"""Characters of the images in one section. The whole page can still be sent by mail."""
RECIPE = r"recipe: [^;\n]*[^;\n.]"
"""A note on the settings of a recipe that differ from the paper's."""
MEANINGS = {
    "reproduced": "0 lies in the interval, which reaches no further than 1 point",
    "inconclusive": "0 lies in the interval, which is wider",
    "above": "the interval lies above 0",
    "below": "the interval lies below 0",
    "no verdict": "cited, of unclear origin or without errors, see the paper's table",
}


class Section(NamedTuple):
    """A part of the page with an address of its own."""

    id: str
    title: str
    parts: Sequence[Part]


class Explanations:
    """The explanations of all records but those of snapshots, and their addresses on the page."""

    def __init__(self, contents: Contents) -> None:
        """Explain every record; equal sections, such as those of one protocol, are stored once."""
        self.records: list[dict[str, Any]] = []
        self.sections: dict[object, int] = {}
        self.addresses: dict[str, str] = {}
        taken: set[str] = set()
        given = (contents.folder, *contents.others)
        folders = {str(own): "RESULTS" for one in given for own in (one.absolute(), one)}
        for run in contents.results.done:
            short = f"{run.backbone}/{run.key}"
            names = [short, f"{short}.{run.schedule}.seed{run.seed}", run.file]
            address = next(name for name in names if name not in taken)
            taken.add(address)
            self.addresses[run.file] = address
            places, hidden = [], _hidden_folders(run, folders)
            for title, lines in explain(run).items():
                texts = tuple(tuple(_without(hidden, text) for text in line) for line in lines)
                places.append(self.sections.setdefault((title, texts), len(self.sections)))
            title = f"{run.label} on {run.task}, seed {run.seed}"
            self.records.append({"address": address, "title": title, "sections": places})

    @property
    def content(self) -> dict[str, Any]:
        """Return all explanations as the page's script reads them."""
        return {"records": self.records, "sections": [*self.sections]}

    def address(self, files: Iterable[str]) -> str:
        """Return the address of records, behind a "#"; empty if there are none."""
        known = [quote(self.addresses[file], safe="/@") for file in files if file in self.addresses]
        return f"#{','.join(known)}" if known else ""


def _hidden_folders(run: Run, folders: Mapping[str, str]) -> dict[str, str]:
    """Return what a record's explanation shows instead of folders of this machine."""
    given = Path(file_of(run.record))
    hidden = {str(given): given.name} if given.is_absolute() else {}
    return hidden | dict(folders)


def _without(hidden: Mapping[str, str], text: str) -> str:
    for folder, word in hidden.items():
        if folder in text:  # only whole paths: a folder may be called "out"
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])", word, text)
    return text


def report_page(contents: Contents, runs: Sequence[Path] = ()) -> str:
    """Return the page of a results folder; every value is escaped, whatever file it came from.

    runs: folders of pre-training runs, whose logs are drawn with those kept in the results.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    folder, results = contents.folder, contents.results
    explanations = Explanations(contents)
    comparison = compared(contents.numbers, explanations.address)
    words = [{*run.reasons.words} for run in results.done]
    identities = {run.identity for run in results.runs}
    tasks = task_folds(folder, contents.numbers, contents.snapshots)
    pretraining = pretraining_parts(folder, runs)
    remaining = not_run(folder, results.runs)
    sections = [
        Section("chosen", "Tables for your paper", _chosen_parts(contents.numbers)),
        Section("beside", "Against the papers", _against(contents.pairs)),
        Section("tables", "The papers’ tables", _paper_parts(contents.papers_tables)),
        Section("numbers", "All numbers", _all_numbers(contents)),
        Section("tasks", "Task by task", _thinned(tasks, MAX_TASKS)),
        Section("pretraining", "Pre-training", _thinned(pretraining, MAX_VIEWS)),
        Section(
            "evaluated",
            "What was evaluated",
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
    own = files(PACKAGE) / "templates"
    verdicts = [pair.verdict for pair in contents.pairs]
    return environment.get_template("page.html.j2").render(
        title=plural(len(identities), "checkpoint") if identities else "No results yet",
        badges=sorted(set.intersection(*words)) if words else [],
        comparison=comparison,
        num_results=plural(len(results.done), "result"),
        num_tasks=count_tasks({run.key for run in results.done}),
        num_failed=sum(bool(run.failure) for run in results.runs),
        num_unsupported=sum(group.num_cells for group in remaining if group.is_unsupported),
        num_missing=sum(group.num_cells for group in remaining if not group.is_unsupported),
        verdicts={word: verdicts.count(word) for word in SIGNS if word in verdicts},
        signs=SIGNS,
        sections=[section for section in sections if section.parts],
        html=lambda part: html(part, explanations.address),
        explanations=explanations.content,
        comparison_content=comparison and comparison.content,
        # files of ours, the only text that is not escaped
        style=Markup((own / "report.css").read_text(encoding="utf-8")),
        script=Markup((own / "report.js").read_text(encoding="utf-8")),
    )


def _against(pairs: Sequence[Pair]) -> list[Part]:
    """Return every number that both we and a paper have, with its verdict."""
    if not pairs:
        return []
    tasks = {pair.printed.task: None for pair in pairs}
    lines = [
        Line(
            words=[
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
    words = [pair.verdict for pair in pairs]
    key = [f"- {SIGNS[w]} **{w}** {MEANINGS[w]}: {words.count(w)}" for w in SIGNS if w in words]
    header = ["task", "checkpoint", "published"]
    numbers = ["ours", "paper", "diff.", "95 % interval", "verdict"]
    return [
        "Ours minus the published number, in points, with the 95 % interval of the difference: "
        "errors of both test sets, and from run to run.",
        "\n".join(key),
        Sheet("Against the papers", Grid(words=header, numbers=numbers, lines=lines), id="papers"),
    ]


def _chosen_parts(numbers: Iterable[Number]) -> list[Part]:
    """Return a table of checkpoints and tasks for each group of tasks."""
    folds: list[Part] = []
    tables = tables_of_groups(numbers)
    for heading, chosen in tables.items():
        table = chosen.table
        texts = {str(form): chosen.text(form) for form in FORMATS}
        sheet = Sheet(heading, table, id=f"chosen-{len(folds)}", texts=texts)
        notes = "\n".join(f"- {plain(note)}" for note in chosen.notes[1:])
        if heading == ALL_TASKS:
            notes = "The notes on its columns are those of the tables above."
        count = plural(len(table.lines), "checkpoint")
        tasks = count_tasks(chosen.keys)
        folds.append(Fold(heading, tasks, count, [sheet, notes], is_open=not folds))
    command = "`python -m benchmarks.tables --name A B --tasks a,b --format latex`"
    text = f"All checkpoints of this page. {command} prints one of some checkpoints and tasks."
    rules = dict.fromkeys(plain(chosen.notes[0]) for chosen in tables.values())
    return [text, *rules, *folds] if folds else []


def _interval(pair: Pair) -> str:
    return pair.difference.interval_text().replace("-", "−") if pair.difference.known else "–"


def _paper_parts(papers_tables: Sequence[PaperTables]) -> list[Part]:
    """Return the papers' tables with our rows, notes on several of them, and links to others."""
    papers_tables = [
        one._replace(shown=[table._replace(grid=_measured(table.grid)) for table in one.shown])
        for one in papers_tables
    ]
    with_ours = [one for one in papers_tables if _num_ours(one)]
    names = grouped(
        (line, one.name) for one in with_ours for line in dict.fromkeys(_legend_lines(one))
    )
    repeated = {line: own for line, own in names.items() if len(own) > 1}
    parts: list[Part] = _recipes_once([_paper_fold(one, repeated) for one in with_ours])
    if repeated:
        lines = [f"- {'; '.join(own)}: {line}" for line, own in repeated.items()]
        text = "\n".join(lines).replace("→ rows", "our rows")
        parts += ["### Notes on several tables", text]
    others = grouped(
        (one.paper.name, (one.table.number, f"../{TABLES}/{one.table.file_name}", one.table.title))
        for one in papers_tables
        if not _num_ours(one)
    )
    if others:
        parts += ["### Tables with no row of ours", *(Links(*entry) for entry in others.items())]
    return parts


def _measured(grid: Grid) -> Grid:
    """Return a table without rows of ours that have no result, and without titles of no rows."""
    lines: list[Line] = []
    for line in reversed(grid.lines):
        is_empty = line.ours and all(cell.text in ("not run", "") for cell in line.numbers)
        is_last_title = not line.numbers and (not lines or not lines[-1].numbers)
        if not is_empty and not is_last_title:
            lines.append(line)
    return replace(grid, lines=lines[::-1])


def _num_ours(tables: PaperTables) -> int:
    return sum(table.num_ours for table in tables.shown)


def _legend_lines(tables: PaperTables) -> list[str]:
    return [line for table in tables.shown for line in table.legend]


def _paper_fold(tables: PaperTables, elsewhere: Container[str]) -> Fold:
    """Return a paper's table with our rows; elsewhere: notes that are not repeated in it."""
    paper, table, shown, notes = tables
    parts: list[Part] = [f"{paper.title}, {paper.venue}, arXiv:{paper.arxiv}"]
    for one in shown:
        if one.grid.lines:
            title = tables.name + (f": {one.title}" if one.title else "")
            legend = "\n".join(f"- {line}" for line in one.legend if line not in elsewhere)
            parts += [Sheet(title, one.grid, kind="numbers"), one.notes, legend]
    parts.append(notes.list())
    parts = [p.replace("→ rows", "our rows") if isinstance(p, str) else p for p in parts]
    count = f"{plural(_num_ours(tables), 'row')} of ours"
    return Fold(tables.name, table.title, count, parts, is_open=True)


def _recipes_once(folds: Iterable[Fold]) -> list[Part]:
    """Return the folds with each long note on a detector's or segmenter's recipe said once."""
    tables: dict[str, str] = {}
    shortened: list[Part] = []
    for fold in folds:

        def short(match: re.Match[str], name: str = fold.name) -> str:
            first = tables.get(match[0])
            tables.setdefault(match[0], name)
            return f"recipe: as in {first}" if first else match[0]

        parts = [re.sub(RECIPE, short, p) if isinstance(p, str) else p for p in fold.parts]
        shortened.append(fold._replace(parts=parts))
    return shortened


def _all_numbers(contents: Contents) -> list[Part]:
    """Return one row per record and metric; what all rows share is in a sentence."""
    rows = [*csv_rows(contents)]
    if not rows:
        return ["There are no numbers yet."]
    values = {name: {row[name] for row in rows} for name in ("schedule", "seed", "data")}
    varied = [name for name, own in values.items() if len(own) > 1]
    shared = [f"{name} {own.pop()}" for name, own in values.items() if name not in varied]
    text = "One row per record and metric, the same as `results.csv`."
    text += f" All: {', '.join(shared)}." if shared else ""
    runs = {run.file: run for run in contents.results.done}
    lines = []
    for row in rows:
        run = runs[row["record"]]
        verdict = row["verdict"] or ("–" if row["comparable"] else "none")
        after = [row["protocol"], row["engine"], *(str(row[name]) for name in varied), verdict]
        value = Cell(text=f"{row['value']:.2f}", files=(run.file,))
        lines.append(
            Line(
                words=[plain(str(text)) for text in (row["backbone"], run.key, row["metric"])],
                numbers=[value, *(Cell(text=plain(text)) for text in after)],
                is_secondary=not row["primary"],
            )
        )
    grid = Grid(
        words=["checkpoint", "task", "metric"],
        numbers=["value", "protocol", "engine", *varied, "verdict"],
        lines=lines,
    )
    families = [runs[row["record"]].heading for row in rows]
    return [text, Sheet("Every number", grid, id="all-numbers", families=families)]


def _figures(folder: Path) -> list[Part]:
    """Return the SVG files of the results. In an image element, a browser runs no script of one."""
    images = []
    for path in sorted((folder / FIGURES).rglob("*.svg")):
        source = f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
        title = metadata_of(path).get("title") or path.stem.replace("_", " ")
        images.append(Image(source, title))
    return [Gallery("", images, kind="gallery")] if images else []


def _thinned(parts: Sequence[Part], limit: int) -> list[Part]:
    """Return the parts with as many images, evenly spread, as fit into a number of characters."""
    size = sum(len(one.source) for gallery in _galleries(parts) for one in gallery.images)
    step = -(-size // limit)
    return [_with_every(part, step) for part in parts] if step > 1 else [*parts]


def _galleries(parts: Iterable[Part]) -> list[Gallery]:
    every = [one for part in parts for one in (part.parts if isinstance(part, Fold) else [part])]
    return [one for one in every if isinstance(one, Gallery)]


def _with_every(part: Part, step: int) -> Part:
    """Return a part with every step-th image of its galleries."""
    if isinstance(part, Fold):
        return part._replace(parts=[_with_every(one, step) for one in part.parts])
    if not isinstance(part, Gallery):
        return part
    kept = part.images[::step]
    note = f"{part.note} {len(part.images) - len(kept)} more are left out for size.".strip()
    return part._replace(images=kept, note=note)
