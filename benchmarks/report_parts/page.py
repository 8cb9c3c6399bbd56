"""The HTML report as one self-contained file, section by section."""

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.drawing.figure import figures
from benchmarks.report_parts.compare import compared
from benchmarks.report_parts.document import Fold, Gallery, Image, Part, Sheet, html
from benchmarks.report_parts.evaluated import evaluated_parts, without_result
from benchmarks.report_parts.pretraining import pretraining_parts
from benchmarks.report_parts.tasks import task_folds
from benchmarks.results.chosen_table import ALL_TASKS, FORMATS, tables_of_groups
from benchmarks.results.contents import Contents, csv_rows
from benchmarks.results.differences import SIGNS
from benchmarks.results.explanation import explain, file_of
from benchmarks.results.numbers import Number
from benchmarks.results.paper_page import PaperTables
from benchmarks.results.records import FIGURES, TABLES, Run
from benchmarks.results.tables import Cell, Grid, Line, plain
from benchmarks.results.verdicts import Pair, pair_texts
from benchmarks.words import count_tasks, grouped, plural

PACKAGE = "benchmarks.report_parts"
MAX_FIGURES, MAX_VIEWS, MAX_TASKS = 4_000_000, 2_000_000, 2_500_000
"""Maximum size of the images in a section, in characters.

With these limits, the report is small enough for e-mail.
"""
RECIPE = r"recipe: [^;\n]*[^;\n.]"
"""Pattern of notes on recipe settings that differ from the paper's."""
MEANINGS = {
    "reproduced": "the interval contains 0 and ends within 1 point of 0 (3 for voc12_seg_linear)",
    "inconclusive": "the interval contains 0, but is wider",
    "above": "the interval lies above 0",
    "below": "the interval lies below 0",
    "no verdict": "a cited number, unclear origin or unknown errors; see the paper's table",
}


def addresses_of(runs: Iterable[Run]) -> dict[str, str]:
    """Return the address of each record on the page, such as mine/voc07_svm, by file.

    Further records of a checkpoint and task have longer addresses.
    """
    files: dict[str, str] = {}
    for run in runs:
        short = f"{run.backbone.name}/{run.key}"
        names = [short, f"{short}.{run.schedule}.seed{run.seed}", run.file]
        files[next(name for name in names if name not in files)] = run.file
    return {file: address for address, file in files.items()}


def explanations_of(contents: Contents, addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return explanations of all records except snapshots, as input of the report's script.

    Equal sections are stored once. A report that is sent to others names no folders of this
    machine.

    addresses: of the records on the page, by file.
    """
    records: list[dict[str, Any]] = []
    sections: dict[object, int] = {}
    for run in contents.results.succeeded:
        checkpoint = Path(file_of(run.record))
        hidden = {str(checkpoint): checkpoint.name} if checkpoint.is_absolute() else {}
        for folder in (contents.folder, *contents.further_folders):
            hidden |= {str(folder): "RESULTS"} if folder.is_absolute() else {}
        section_ids = []
        for title, lines in explain(run).items():
            texts = tuple(tuple(_replaced(text, hidden) for text in line) for line in lines)
            section_ids.append(sections.setdefault((title, texts), len(sections)))
        title = f"{run.backbone.label} on {run.key}, seed {run.seed}"
        records.append({"address": addresses[run.file], "title": title, "sections": section_ids})
    return {"records": records, "sections": [*sections]}


def _replaced(text: str, replacements: Mapping[str, str]) -> str:
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text


def report_page(contents: Contents, runs: Sequence[Path]) -> str:
    """Return the HTML report of results folders; all values are escaped.

    runs: folders of pre-training runs. Their logs are drawn together with those stored in the
    results.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    folder, results = contents.folder, contents.results
    addresses = addresses_of(results.succeeded)

    def address(files: Iterable[str]) -> str:
        """Return the address of records, starting with "#", or an empty text."""
        quoted = ",".join(quote(addresses[file], safe="/@") for file in files if file in addresses)
        return f"#{quoted}" if quoted else ""

    comparison = compared(contents.numbers, address)
    reasons = [{*run.reasons.texts} for run in results.succeeded]
    identities = {run.backbone.identity for run in results.runs}
    tasks = task_folds(folder, contents.numbers, contents.snapshots)
    pretraining = pretraining_parts(folder, runs)
    remaining = without_result(folder, results.runs)
    num_unsupported = sum(content["state"] == "unsupported" for content in remaining)
    evaluated = evaluated_parts(results, contents.numbers, remaining)
    sections: list[tuple[str, str, Sequence[Part]]] = [
        ("chosen", "Tables for your paper", _chosen_parts(contents.numbers)),
        ("beside", "Differences from the papers", _against(contents.pairs)),
        ("tables", "The papers’ tables", _paper_parts(contents.papers_tables)),
        ("numbers", "All numbers", _all_numbers(contents)),
        ("tasks", "Task by task", _thinned(tasks, MAX_TASKS)),
        ("pretraining", "Pre-training", _thinned(pretraining, MAX_VIEWS)),
        ("evaluated", "Evaluated checkpoints", evaluated),
        ("figures", "The papers’ figures", _thinned(_figures(folder), MAX_FIGURES)),
    ]
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates = files(PACKAGE) / "templates"
    verdicts = Counter(pair.verdict for pair in contents.pairs)
    return environment.get_template("page.html.j2").render(
        title=plural(len(identities), "checkpoint") if identities else "No results yet",
        badges=sorted(set.intersection(*reasons)) if reasons else [],
        comparison=comparison,
        num_results=plural(len(results.succeeded), "result"),
        num_tasks=count_tasks({run.key for run in results.succeeded}),
        num_failed=sum(bool(run.failure) for run in results.runs),
        num_unsupported=num_unsupported,
        num_missing=len(remaining) - num_unsupported,
        verdicts={verdict: verdicts[verdict] for verdict in SIGNS if verdict in verdicts},
        signs=SIGNS,
        sections=[section for section in sections if section[2]],
        html=lambda part: Markup(html(part, address)),
        explanations=explanations_of(contents, addresses),
        # the only text that is not escaped: files of this package
        style=Markup((templates / "report.css").read_text(encoding="utf-8")),
        script=Markup((templates / "report.js").read_text(encoding="utf-8")),
    )


def _against(pairs: Sequence[Pair]) -> list[Part]:
    """Return all numbers that both we and a paper have, with verdicts."""
    if not pairs:
        return []
    lines = []
    for task, task_pairs in grouped((pair.printed.task, pair) for pair in pairs).items():
        for pair in task_pairs:
            *_, label, ours, paper, points, interval, verdict = pair_texts(pair)
            published = f"{pair.printed.where}: {pair.printed.row.label}, {label}"
            texts = [paper, points, interval, f"{SIGNS[verdict]} {verdict}"]
            cells = [Cell(text=ours, score=pair.ours.score, files=pair.ours.files)]
            cells += [Cell(text=text.replace("-", "−")) for text in texts]
            lines.append(Line(texts=[task, plain(pair.ours.label), published], numbers=cells))
    verdicts = Counter(pair.verdict for pair in pairs)
    legend = [
        f"- {SIGNS[verdict]} **{verdict}** {MEANINGS[verdict]}: {verdicts[verdict]}"
        for verdict in SIGNS
        if verdict in verdicts
    ]
    header = ["task", "checkpoint", "published"]
    numbers = ["ours", "paper", "diff.", "95 % interval", "verdict"]
    grid = Grid(texts=header, numbers=numbers, lines=lines)
    return [
        "Ours minus the published number, in points, with the 95 % interval of the difference: "
        "errors of both test sets and the run-to-run deviation.",
        "\n".join(legend),
        Sheet("Differences from the papers", grid, id="papers"),
    ]


def _chosen_parts(numbers: Iterable[Number]) -> list[Part]:
    """Return a table of checkpoints and tasks for each group of tasks."""
    tables = tables_of_groups(numbers)
    if not tables:
        return []
    folds: list[Fold] = []
    for heading, chosen_table in tables.items():
        table = chosen_table.table
        texts = {str(form): chosen_table.text(form) for form in FORMATS}
        sheet = Sheet(heading, table, id=f"chosen-{len(folds)}", texts=texts)
        notes = "\n".join(f"- {plain(note)}" for note in chosen_table.notes[1:])
        if heading == ALL_TASKS:
            notes = "For notes on its columns, see the tables above."
        count, tasks = plural(len(table.lines), "checkpoint"), count_tasks(chosen_table.keys)
        folds.append(Fold(heading, tasks, count, [sheet, notes], is_open=not folds))
    rules = dict.fromkeys(plain(chosen_table.notes[0]) for chosen_table in tables.values())
    return [
        "All checkpoints of this report. To print a table of selected checkpoints and tasks, run "
        "`python -m benchmarks.tables --name A B --tasks a,b --format latex`.",
        *rules,
        *folds,
    ]


def _paper_parts(papers_tables: Iterable[PaperTables]) -> list[Part]:
    """Return the papers' tables with our rows, and links to the others."""
    folds: list[Part] = []
    links: dict[str, list[str]] = {}
    recipes: dict[str, str] = {}
    for tables in papers_tables:
        paper, table, paper_tables, notes = tables
        grids = [_measured(paper_table.grid) for paper_table in paper_tables]
        num_ours = sum(line.kind == "ours" for grid in grids for line in grid.lines)
        if not num_ours:
            link = f'[{table.number}](../{TABLES}/{table.file_name} "{table.title}")'
            links.setdefault(paper.name, []).append(link)
            continue

        def short(match: re.Match[str], name: str = tables.name) -> str:
            """Return the differences from a recipe once, and then where they are."""
            first = recipes.setdefault(match[0], name)
            return match[0] if first == name else f"recipe: as in {first}"

        parts: list[Part] = [f"{paper.title}, {paper.venue}, arXiv:{paper.arxiv}"]
        for paper_table, grid in zip(paper_tables, grids, strict=True):
            if grid.lines:
                title = ": ".join(filter(None, [tables.name, paper_table.title]))
                legend = "\n".join(f"- {line}" for line in paper_table.legend)
                parts.append(Sheet(title, grid, kind="numbers"))
                parts += [re.sub(RECIPE, short, text) for text in (paper_table.notes, legend)]
        parts.append(re.sub(RECIPE, short, notes.list()))
        count = f"{plural(num_ours, 'row')} with our results"
        folds.append(Fold(tables.name, table.title, count, parts, is_open=True))
    if links:
        folds.append("### Tables without our rows")
        folds += [f"{name}: {', '.join(of_paper)}" for name, of_paper in links.items()]
    return folds


def _measured(grid: Grid) -> Grid:
    """Return a table without our empty rows, and without empty groups."""
    lines = [
        line
        for line in grid.lines
        if line.kind != "ours" or any(cell.text not in ("not run", "") for cell in line.numbers)
    ]
    followers = [*lines[1:], Line(texts=())]
    kept = [a for a, b in zip(lines, followers, strict=False) if a.numbers or b.numbers]
    return replace(grid, lines=kept)


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
        verdict = row["verdict"] or ("–" if row["comparable"] else "none")
        texts = [row["protocol"], row["engine"], *(row[name] for name in varied), verdict]
        value = Cell(text=f"{row['value']:.2f}", files=(row["record"],))
        names = [row["backbone"], runs[row["record"]].key, row["metric"]]
        lines.append(
            Line(
                texts=[plain(name) for name in names],
                numbers=[value, *(Cell(text=plain(str(text))) for text in texts)],
                kind="" if row["primary"] else "secondary",
                words=runs[row["record"]].heading,
            )
        )
    numbers = ["value", "protocol", "engine", *varied, "verdict"]
    grid = Grid(texts=["checkpoint", "task", "metric"], numbers=numbers, lines=lines)
    return [text, Sheet("Every number", grid, id="all-numbers")]


def _figures(folder: Path) -> list[Part]:
    """Return the SVG files of the papers' figures.

    They are embedded as images, since browsers run no scripts of images.
    """
    images = []
    for figure in sorted(figures().values(), key=lambda figure: figure.file_name):
        path = folder / FIGURES / f"{figure.file_name}.svg"
        if path.is_file():
            content = base64.b64encode(path.read_bytes()).decode()
            images.append(Image(f"data:image/svg+xml;base64,{content}", figure.title))
    return [Gallery("", images, kind="gallery")] if images else []


def _thinned(parts: Sequence[Part], limit: int) -> list[Part]:
    """Return the parts with evenly spaced images within a size limit."""
    size = sum(len(image.source) for gallery in _galleries(parts) for image in gallery.images)
    step = -(-size // limit)
    return [_with_every(part, step) for part in parts] if step > 1 else [*parts]


def _galleries(parts: Iterable[Part]) -> Iterator[Gallery]:
    for part in parts:
        if isinstance(part, Fold):
            yield from _galleries(part.parts)
        elif isinstance(part, Gallery):
            yield part


def _with_every(part: Part, step: int) -> Part:
    """Return a part with every step-th image of its galleries."""
    if isinstance(part, Fold):
        return part._replace(parts=[_with_every(inner, step) for inner in part.parts])
    if not isinstance(part, Gallery):
        return part
    images = part.images[::step]
    num_omitted = len(part.images) - len(images)
    note = f"{part.note} {num_omitted} more are omitted to limit the size.".strip()
    return part._replace(images=images, note=note)
