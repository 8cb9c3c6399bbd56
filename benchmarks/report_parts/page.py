"""The whole page: its parts in order, rendered by the templates into one self-contained file."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.pages.again import key_of
from benchmarks.pages.blocks import reasons_of
from benchmarks.pages.explanation import explain
from benchmarks.pages.numbers import numbers_of
from benchmarks.pages.paper_page import paper_tables, tasks_of
from benchmarks.pages.published import papers
from benchmarks.pages.records import Result
from benchmarks.report_parts.beside_papers import MEANINGS, SIGNS, beside_papers
from benchmarks.report_parts.by_task import parts_by_task
from benchmarks.report_parts.checkpoints import checkpoints, missing_tasks
from benchmarks.report_parts.comparison import MOST_SENTENCES, comparisons
from benchmarks.report_parts.contents import Contents, Details, read_contents
from benchmarks.report_parts.costs import task_hours
from benchmarks.report_parts.galleries import figures
from benchmarks.report_parts.pretraining import kept_logs, pretraining
from benchmarks.report_parts.requested import not_run, run_command
from benchmarks.report_parts.size import MOST_CHARACTERS, within_limit

TEMPLATES = "templates"


def report_page(results: Path, runs: Sequence[Path] = ()) -> str:
    """Return the page of a results folder; FileNotFoundError if there is no such folder.

    runs: folders of pre-training runs, whose logs are drawn beside those kept in the results.
    """
    contents = read_contents(results)
    details = explained_records(contents)
    trained = pretraining(runs, kept_logs(results))
    pictured = parts_by_task(contents), trained, figures(results)
    parts = {
        "contents": contents,
        "checkpoints": checkpoints(contents, trained.logs),
        "not_run": not_run(results, contents.results),
        "missing": missing_tasks(contents),
        "run_missing": run_command(),
        "groups": comparisons(contents, details),
        "most_sentences": MOST_SENTENCES,
        "badges": badges(contents),
        "beside": beside_papers(contents, details),
        "signs": SIGNS,
        "meanings": MEANINGS,
        "tables": [
            paper_tables(table, paper, contents.results)
            for paper in papers()
            for table in paper.tables
            if table.kind != "settings" and tasks_of(table)
        ],
        "hours": task_hours(contents),
        "numbers": numbers_of(contents.results),
        "headings": {result.task: result.heading for result in contents.results.done},
        "details": details,
    }

    def with_images(limit: int) -> str:
        images = within_limit(*pictured, limit)
        shown: dict[str, Any] = {"by_task": images.by_task, "pretraining": images.pretraining}
        shown |= {"figures": images.figures, "left_out": images.left_out}
        return render(parts | shown)

    page = with_images(MOST_CHARACTERS)
    above = len(page.encode()) - MOST_CHARACTERS
    return with_images(MOST_CHARACTERS - above) if above > 0 else page


def badges(contents: Contents) -> list[str]:
    """Return what is true of all results and keeps them from standing beside a paper's."""
    words = [set(reasons_of(result).words()) for result in contents.results.done]
    return sorted(set.intersection(*words)) if words else []


def explained_records(contents: Contents) -> Details:
    """Return the explanations of all records but those of snapshots."""
    details, taken = Details(), set[str]()
    for result in contents.results.done:
        key = key_of(result.task, result.protocol) or result.task
        short, told = f"{result.model.name}/{key}", [result.schedule, f"seed{result.seed}"]
        names = [short, ".".join([short, *told]), result.file]
        address = next(name for name in names if name not in taken)
        taken.add(address)
        details.addresses[result.file] = address
        details.add(address, *_explanation(contents, result))
    return details


def _explanation(contents: Contents, result: Result) -> tuple[str, list[tuple[str, Any]]]:
    """Return title and sections of one record's explanation."""
    record = contents.whole(result)
    title = f"{result.model.label} on {result.task}, seed {result.seed}"
    if record is None:
        lines = [("record", result.file), ("protocol", result.protocol)]
        return title, [("Record of an older format", lines)]
    try:
        sections = explain(contents.folder / result.file, record, result).sections
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        lines = [("record", result.file), ("field", f"{type(error).__name__}: {error}")]
        return title, [("Not a complete record", lines)]
    here = [str(contents.folder.absolute()), str(contents.folder)]

    given = Path(str(record.request.get("ckpt", "")))

    def without_folder(text: str) -> str:
        text = text.replace(str(given), given.name) if given.is_absolute() else text
        for folder in here if contents.folder.is_absolute() else here[:1]:
            text = text.replace(folder, "RESULTS")
        return text

    return title, [
        (name, [(label, without_folder(text)) for label, text in lines])
        for name, lines in sections.items()
    ]


def render(parts: Mapping[str, Any]) -> str:
    """Return the page; every value is escaped, whatever file it came from."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("benchmarks.report_parts", TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    folder = files("benchmarks.report_parts") / TEMPLATES
    own = {  # our own files, the only text that is not escaped
        "style": Markup((folder / "report.css").read_text(encoding="utf-8")),
        "script": Markup((folder / "report.js").read_text(encoding="utf-8")),
    }
    return environment.get_template("index.html.j2").render(**parts, **own)
