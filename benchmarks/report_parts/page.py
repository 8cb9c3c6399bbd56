"""The whole page: its parts in order, rendered by the templates into one self-contained file."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.drawing.neighbors import evenly
from benchmarks.pages.blocks import reasons_of
from benchmarks.pages.differences import SIGNS
from benchmarks.pages.explanation import explain, file_of
from benchmarks.pages.paper_page import paper_tables, tasks_of
from benchmarks.pages.published import result_tables
from benchmarks.pages.records import Result
from benchmarks.pages.results_csv import numbers_of
from benchmarks.report_parts.charts import Chart
from benchmarks.report_parts.checkpoints import checkpoints, missing_tasks, task_hours
from benchmarks.report_parts.comparison import (
    MEANINGS,
    MOST_SENTENCES,
    beside_papers,
    comparisons,
)
from benchmarks.report_parts.contents import Contents, Details, Section, read_contents
from benchmarks.report_parts.galleries import (
    Gallery,
    Queries,
    figures,
    galleries_of,
    queries_of,
)
from benchmarks.report_parts.pretraining import Log, kept_logs, pretraining
from benchmarks.report_parts.requested import not_run, run_command
from benchmarks.report_parts.task_charts import charts_of, named_records
from benchmarks.report_parts.task_classes import Confusions, NumberTable, confusions_of, tables_of


@dataclass(frozen=True, kw_only=True)
class TaskPart:
    """Charts and tables of one task."""

    task: str
    heading: str
    num_results: int
    charts: tuple[Chart, ...] = ()
    tables: tuple[NumberTable, ...] = ()
    confusions: tuple[Confusions, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    queries: tuple[Queries, ...] = ()
    unreadable: str = ""
    """Sentence on details of records that have a foreign shape."""

    @property
    def num_pictures(self) -> int:
        """Number of pictures in galleries and beside queries."""
        rows = [row for _, own in self.queries for row in own]
        return sum(map(len, [*(one.pictures for one in self.galleries), *rows]))

    @property
    def words(self) -> str:
        """Return what the part holds, in a line."""
        titles = [chart.title for chart in self.charts] + [table.title for table in self.tables]
        titles += ["Most confused classes"] if self.confusions else []
        titles += ["Pictures"] if self.galleries else []
        titles += ["Nearest images"] if self.queries else []
        titles += ["Details that cannot be read"] if self.unreadable else []
        kinds = dict.fromkeys(title.partition(":")[0] for title in titles)
        return "; ".join(kinds)


def parts_by_task(contents: Contents) -> list[TaskPart]:
    """Return a part for each task whose records hold charts or tables."""
    done, snapshots = contents.results.done, contents.snapshots.done
    parts = []
    for task in dict.fromkeys(result.task for result in (*done, *snapshots)):
        own = [r for r in done if r.task == task]
        of_snapshots = [r for r in snapshots if r.task == task]
        heading = [*own, *of_snapshots][0].heading
        part = TaskPart(task=task, heading=heading, num_results=len(own))
        records = named_records(own)
        try:
            part = replace(
                part,
                charts=tuple(charts_of(records, of_snapshots)),
                tables=tuple(tables_of(records)),
                confusions=tuple(confusions_of(records)),
                galleries=tuple(galleries_of(contents.folder, records)),
                queries=tuple(queries_of(records)),
            )
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            what = f"a shape that this page cannot read ({type(error).__name__}: {error})"
            part = replace(part, unreadable=f"Details of a record of {task} have {what}.")
        if part.words:
            parts.append(part)
    return sorted(parts, key=lambda part: (part.heading, part.task))


MOST_CHARACTERS = 9_500_000
"""Largest page: it can still be sent by mail."""
MOST_OF_FIGURES = 4_000_000
"""Characters of the figures that are shown."""
MOST_OF_VIEWS = 2_000_000
"""Characters of the views of pre-training runs that are shown."""
SHARES = (1.0, 0.5, 0.25, 0.1, 0.0)
"""Shares of the tasks' pictures that are tried until the page is small enough."""


def with_share(part: TaskPart, share: float) -> TaskPart:
    """Return a part with a share of its pictures, spread over their outcomes and classes."""

    def thinned(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(evenly(items, math.ceil(share * len(items))))

    galleries = (replace(one, pictures=thinned(one.pictures)) for one in part.galleries)
    queries = ((name, thinned(rows)) for name, rows in part.queries)
    return replace(part, galleries=tuple(galleries), queries=tuple(queries))


def shown_figures(figures: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the figures, in their order, that are not too large together."""
    sizes = accumulate(len(source) for _, source in figures)
    fitting = zip(figures, sizes, strict=True)
    return [one for one, size in fitting if one[1] and size <= MOST_OF_FIGURES]


def shown_views(logs: Sequence[Log]) -> tuple[Log, ...]:
    """Return the logs, without their views from where these are too large together."""
    sizes = accumulate(len(log.views) for log in logs)
    fitting = zip(logs, sizes, strict=True)
    return tuple(log if size <= MOST_OF_VIEWS else replace(log, views="") for log, size in fitting)


def _left_out(number: int, thing: str, place: str) -> str:
    verb = " is" if number == 1 else "s are"
    return f"{number} {thing}{verb} left out for size: {place}" if number else ""


TEMPLATES = "templates"


def report_page(results: Path, runs: Sequence[Path] = ()) -> str:
    """Return the page of a results folder; FileNotFoundError if there is no such folder.

    runs: folders of pre-training runs, whose logs are drawn beside those kept in the results.
    """
    contents = read_contents(results)
    details = explained_records(contents)
    trained = pretraining(runs, kept_logs(results))
    by_task, drawn = parts_by_task(contents), figures(results)
    shown, logs = shown_figures(drawn), shown_views(trained.logs)
    unseen = sum(bool(log.views) for log in trained.logs) - sum(bool(log.views) for log in logs)
    parts = {
        "contents": contents,
        "checkpoints": checkpoints(contents, trained.logs),
        "not_run": not_run(results, contents.results),
        "missing": missing_tasks(contents),
        "run_missing": run_command(),
        "groups": comparisons(contents, details),
        "most_sentences": MOST_SENTENCES,
        "badges": badges(contents),
        "beside": beside_papers(contents),
        "signs": SIGNS,
        "meanings": MEANINGS,
        "tables": [
            (paper, table, paper_tables(table, contents.results))
            for paper, table in result_tables()
            if tasks_of(table)
        ],
        "hours": task_hours(contents),
        "numbers": numbers_of(contents.results),
        "by_file": {result.file: result for result in contents.results.done},
        "details": details,
        "pretraining": replace(trained, logs=logs),
        "views_left_out": _left_out(unseen, "picture", "views.jpg in the runs’ folders"),
        "figures": shown,
        "figures_left_out": _left_out(len(drawn) - len(shown), "figure", "results/figures"),
    }
    every = sum(part.num_pictures for part in by_task)
    for share in SHARES if every else SHARES[:1]:
        tasks = [with_share(part, share) for part in by_task]
        number = every - sum(part.num_pictures for part in tasks)
        pictures = _left_out(number, "picture", "the .gallery folders and records in results")
        page = render(parts | {"by_task": tasks, "pictures_left_out": pictures})
        if len(page.encode(errors="backslashreplace")) <= MOST_CHARACTERS:
            break
    return page


def badges(contents: Contents) -> list[str]:
    """Return what is true of all results and keeps them from standing beside a paper's."""
    words = [set(reasons_of(result).words()) for result in contents.results.done]
    return sorted(set.intersection(*words)) if words else []


def explained_records(contents: Contents) -> Details:
    """Return the explanations of all records but those of snapshots."""
    details, taken = Details(), set[str]()
    for result in contents.results.done:
        short, told = f"{result.model.name}/{result.key}", [result.schedule, f"seed{result.seed}"]
        names = [short, ".".join([short, *told]), result.file]
        address = next(name for name in names if name not in taken)
        taken.add(address)
        details.addresses[result.file] = address
        details.add(address, *_explanation(contents, result))
    return details


def _explanation(contents: Contents, result: Result) -> tuple[str, list[Section]]:
    """Return title and sections of one record's explanation, without names of folders."""
    given = Path(file_of(result.record))
    hidden = {str(given): given.name} if given.is_absolute() else {}
    hidden |= {str(folder): "RESULTS" for folder in (contents.folder.absolute(), contents.folder)}

    def without_folder(text: str) -> str:
        for folder, word in hidden.items():  # whole paths alone: a folder may be called "out"
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])", word, text)
        return text

    return f"{result.model.label} on {result.task}, seed {result.seed}", [
        (name, tuple((without_folder(label), without_folder(text)) for label, text in lines))
        for name, lines in explain(result).items()
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
