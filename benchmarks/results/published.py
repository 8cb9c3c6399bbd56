"""Numbers that papers print, from published/<paper>.yaml and from installed packages."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from benchmarks.results.differences import TWO_SIDED, Score
from pretrain.running.plugins import with_plugins

FOLDER = Path(__file__).parents[1] / "published"
FIRST = ("jcl", "co2", "lorac", "uniclr", "looc")
"""Papers that come first, in this order; others follow by name."""

ELSEWHERE = "elsewhere"
"""Protocol of a number that was measured by other means than those of any task here."""
UNTRAINED = "random initialisation"
"""Method in the record of a backbone whose weights the suite drew itself."""

Mark = bool | Literal["default"] | None


@dataclass(frozen=True, kw_only=True)
class Column:
    """One printed column of numbers."""

    key: str
    label: str
    block: str = ""
    """Heading that the paper prints above several columns."""
    task: str = ""
    """Id of the task that yields the number; empty where each row has its own."""
    metric: str = ""
    """Name of the number in that task's record."""
    protocol: str = ""
    """Protocol of the paper for the task, without the version."""
    higher_is_better: bool | None
    """Direction of the metric; None for settings."""
    no_verdict: str = ""
    """Reason why none of its numbers is judged; empty if they are."""


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """Pre-training of a published row; None where the paper does not say."""

    arch: str | None = None
    data: str | None = None
    epochs: int | str | None = None
    batch_size: int | None = None
    norm_groups: int | None = None
    """Groups of shuffled batch norm, one per GPU; 0 if the paper does not say how many. None if
    the method shuffles nothing."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One printed row."""

    label: str
    role: str
    """One of own, baseline_trained, baseline_reeval, cited, supervised, random or unclear."""
    group: str = ""
    """Group of rows that it stands in."""
    task: str = ""
    """Id of the task, if rows and not columns name it."""
    protocol: str = ""
    """Protocol of the row, if it differs from the column's."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """Protocol of single numbers that the paper cites, by task id; ELSEWHERE if it is not built
    here."""
    method: str = ""
    """Name of the method in METHODS; empty if it is not implemented here."""
    recipe: str = ""
    """Recipe of `python -m pretrain --list` that trains the row's backbone."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other readings of the row by recipe: how each differs from the printed run."""
    heads: Mapping[str, int] = field(default_factory=dict)
    """Number of each used head in the recipe's file, by its name; empty if all heads are used."""
    pretrain: Pretraining = Pretraining()
    attrs: Mapping[str, int | str | None] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Check marks; None where the paper does not say, "default" for its asterisk."""
    marks_inferred: bool = False
    """Marks are taken from the text, not from the printed table."""
    values: Mapping[str, float | None]
    bracketed: Mapping[str, float] = field(default_factory=dict)
    """Second numbers, printed in brackets: those that the paper measured itself."""
    markers: Mapping[str, str] = field(default_factory=dict)
    """Footnote marks per value; under "bracketed" those of the bracket."""
    ci: Mapping[str, float] = field(default_factory=dict)
    """Half width of the printed confidence interval."""
    note: str = ""
    unstated: str = ""
    """What the paper leaves open about the row, whose numbers therefore have no verdict."""

    def number(self, column: Column) -> float | None:
        """Return the number that ours is compared with: of two, the one that the paper measured."""
        return self.bracketed.get(column.key, self.values.get(column.key))

    def no_verdict(self, column: Column) -> str:
        """Return why one number of the row is not judged; empty if it is."""
        if self.role == "unclear":
            return "the paper does not say who trained and measured it"
        if self.role == "cited" or (self.task or column.task) in self.protocols:
            return "the paper cites the number from elsewhere"
        return self.unstated or column.no_verdict

    def protocol_of(self, column: Column) -> str:
        """Return the protocol of one number of the row; empty if it is not built here."""
        return self.protocol_for(self.task or column.task, column.protocol)

    @property
    def own_protocols(self) -> set[str]:
        """Protocols that the row names for itself and that are built here."""
        return {self.protocol, *self.protocols.values()} - {"", ELSEWHERE}

    def protocol_for(self, task: str, of_column: str) -> str:
        """Return the protocol of the row's numbers of a task; empty if it is not built here.

        A number that the paper cites was measured elsewhere, unless the row names the protocol.
        """
        own = self.protocols.get(task, self.protocol)
        if own == ELSEWHERE:
            return ""
        return own or ("" if self.role == "cited" else of_column)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One printed table, or what a paper says about a figure."""

    id: str
    number: str
    kind: Literal["results", "settings", "text"]
    title: str
    facts: tuple[str, ...]
    """Facts that a reader must know, such as the meaning of footnote marks."""
    columns: tuple[Column, ...]
    attributes: Mapping[str, str]
    """Label of each printed column that describes a row, by its key in `attrs` or `marks`."""
    rows: tuple[Row, ...]
    points: tuple[Row, ...] = ()
    """Points of a figure without printed numbers: rows with the figure's name and a recipe."""

    @property
    def file_name(self) -> str:
        """File name of the table's page, such as lorac_table2.md."""
        return self.id.replace("/", "_") + ".md"

    @property
    def tasks(self) -> set[str]:
        """Ids of the tasks in the table; the average counts as its twelve members."""
        named = {column.task for column in self.columns} | {row.task for row in self.rows}
        return (named - {"", AVERAGE}) | (set(transfer_tasks()) if AVERAGE in named else set())


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of ours that stands against a number of the running text."""

    value: str
    """Key of the number in the statement's values."""
    recipe: str
    """Recipe of the backbone."""
    minus: str = ""
    """Recipe of the backbone whose result is subtracted; empty for none."""
    task: str = ""
    """Id of the task; empty for a metric of the last epoch of pre-training."""
    protocol: str = ""
    """Protocol of the paper for the task, without the version."""
    metric: str
    """Name of the number in the task's record or in the log of pre-training."""
    no_verdict: str = ""
    """Reason why the number is not judged; empty if it is."""

    @property
    def recipes(self) -> tuple[str, ...]:
        """Return the one or two recipes."""
        return (self.recipe, self.minus) if self.minus else (self.recipe,)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Numbers that only the running text states."""

    where: str
    what: str
    values: Mapping[str, Any]
    assumed: str = ""
    """Sentences on what the paper leaves open and our runs assume; empty if nothing."""
    pretrain: Pretraining = Pretraining()
    """Pre-training of recipes that no row of a table names."""
    measured: tuple[Measurement, ...] = ()
    """Results that stand against the numbers; no entry for settings and for shapes of curves."""
    swept: Mapping[float, Measurement] = field(default_factory=dict)
    """Result at every value of a setting of which the paper names the best; mostly empty."""

    @property
    def recipes(self) -> tuple[str, ...]:
        """Return the recipes whose results stand against anything here."""
        every = (*self.measured, *self.swept.values())
        return tuple(recipe for one in every for recipe in one.recipes)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Numbers that one paper prints."""

    id: str
    name: str
    """Name of its method, by which the paper is called."""
    title: str
    venue: str
    arxiv: str
    tables: tuple[Table, ...]
    stated: tuple[Statement, ...]
    also: tuple[str, ...] = ()
    """Keys of tasks that its tables do not show: those of figures, and other readings."""

    @property
    def reported(self) -> dict[tuple[str, str], None]:
        """Return task id and protocol without version of every number in the tables, in order."""
        return {
            (row.task or column.task, row.protocol or column.protocol): None
            for table in self.tables
            for column in table.columns
            # a table without rows still reports the tasks of its columns
            for row in table.rows or (Row(label="", role="", values={}),)
            if row.task or column.task
            if (row.protocol or column.protocol) != ELSEWHERE
        }


# our names of networks by those that the papers print
ARCHITECTURES = {"ResNet-18": "resnet18", "ResNet-50": "resnet50", "R50": "resnet50"}


@cache
def papers() -> tuple[Paper, ...]:
    """Return all papers: those of the suite, first FIRST, then those of installed packages.

    PluginError if two have one name.
    """
    own = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}
    files = with_plugins(own, "papers")
    names = [*FIRST, *(name for name in files if name not in FIRST)]
    return tuple(load_paper(files[name]) for name in names)


@cache
def published_recipes() -> dict[str, Pretraining]:
    """Return the pre-training of every recipe that a number of the papers names.

    Settings that one table leaves out are taken from the others.
    """
    recipes: dict[str, Pretraining] = {}
    for paper in papers():
        for row in (row for table in paper.tables for row in (*table.rows, *table.points)):
            for recipe in (row.recipe, *row.beside) if row.recipe else ():
                recipes[recipe] = completed(recipes.get(recipe, Pretraining()), row.pretrain)
        for statement in paper.stated:
            for recipe in statement.recipes:
                recipes[recipe] = completed(recipes.get(recipe, Pretraining()), statement.pretrain)
    return recipes


def completed(known: Pretraining, more: Pretraining) -> Pretraining:
    """Return the settings that are known, completed by further ones."""
    given = {name: value for name, value in vars(known).items() if value is not None}
    return Pretraining(**vars(more) | given)


AVERAGE = "transfer_linear/average"
"""Column of LORAC's Table II that is not a task: the unweighted mean of the twelve tasks."""
CORRUPTED = "imagenet_c100_eval"
NUM_PHOTOGRAPHS = 5_000
"""Photographs of that task: all corruptions of one are right or wrong together."""


@cache
def num_test_images(task: str) -> int | None:
    """Return the published number of test images of a task id; None if it is not known."""
    from transfer.datasets.catalog import DATASETS
    from transfer.tasks import TASKS, reading_of

    own = next((TASKS[key] for key in TASKS if reading_of(key)[0] == task), None)
    if task == CORRUPTED:
        return NUM_PHOTOGRAPHS
    return (DATASETS[own.datasets()[0]].counts.get("test") or None) if own else None


def published_score(row: Row, column: Column, value: float) -> Score:
    """Return a printed number with the errors that its test set gives it, or that are printed."""
    task, interval = row.task or column.task, row.ci.get(column.key)
    if interval is not None:
        return Score(mean=value, metric=column.metric, stated_error=interval / TWO_SIDED)
    if task == AVERAGE:
        sizes = [num_test_images(member) for member in transfer_tasks()]
        variances = [value * (100 - value) / size for size in sizes if size]
        error = math.sqrt(sum(variances)) / len(sizes)
        return Score(mean=value, metric=column.metric, stated_error=error)
    return Score(mean=value, metric=column.metric, num_images=num_test_images(task))


@cache
def transfer_tasks() -> tuple[str, ...]:
    """Return the ids of the twelve tasks of linear transfer, in the order of LORAC's Table II."""
    tasks = (column.task for column in published_table("lorac/table2").columns)
    return tuple(task for task in tasks if task != AVERAGE)


def published_table(table_id: str) -> Table:
    """Return the table with an id such as lorac/table2; KeyError if there is none."""
    return {table.id: table for _, table in all_tables()}[table_id]


def all_tables() -> list[tuple[Paper, Table]]:
    """Return every table behind its paper, in their order."""
    return [(paper, table) for paper in papers() for table in paper.tables]


class Printed(NamedTuple):
    """A number that a table of results, or the text on a figure, prints."""

    paper: Paper
    table: Table
    row: Row
    column: Column
    value: float

    @property
    def task(self) -> str:
        """Return the id of the task that measures the number."""
        return self.row.task or self.column.task

    @property
    def protocol(self) -> str:
        """Return the protocol of the paper's measurement; empty if it is not built here."""
        return self.row.protocol_of(self.column)

    @property
    def where(self) -> str:
        """Return paper and table, such as "LORAC, Table II"."""
        return f"{self.paper.name}, {self.table.number}"

    @property
    def label(self) -> str:
        """Return the label of the column, with the group of rows if that names the task."""
        return f"{self.row.group} {self.column.label}" if self.row.task else self.column.label


@cache
def printed() -> tuple[Printed, ...]:
    """Return every number that tables of results or texts on figures print, in their order."""
    return tuple(
        Printed(paper, table, row, column, value)
        for paper, table in all_tables()
        if table.kind != "settings"
        for row in table.rows
        for column in table.columns
        if (value := row.number(column)) is not None
    )


def published_count_words() -> str:
    """Return how many numbers are printed, in all and by paper.

    Settings, second numbers in brackets, printed intervals and numbers of the running text are not
    counted.
    """
    counts = Counter(one.paper.name for one in printed())
    by_paper = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"{counts.total()} published numbers in the tables of {len(counts)} papers: {by_paper}"


@cache
def best_published(task: str, protocol: str, metric: str) -> tuple[float, str] | None:
    """Return the highest number of a self-supervised method, and where it is printed.

    Only numbers that were measured under the protocol count, which is given without its version.
    None if no paper prints one.
    """
    candidates = [
        (one.value, f"{one.row.label}, {one.paper.name} {one.table.number}")
        for one in printed()
        if one.row.role != "supervised" and one.protocol == protocol
        if one.task == task and one.column.metric == metric
    ]
    return max(candidates, key=lambda candidate: candidate[0], default=None)


def load_paper(path: Path) -> Paper:
    """Read one file of published/."""
    # PyYAML's C loader, if built, is many times faster than the Python one
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return Paper(
        id=content["paper"],
        **{name: content[name] for name in ("name", "title", "venue", "arxiv")},
        tables=tuple(_table(entry) for entry in content["tables"]),
        stated=tuple(_statement(entry) for entry in content.get("stated", ())),
        also=tuple(content.get("also", ())),
    )


def _statement(entry: dict[str, Any]) -> Statement:
    measured = tuple(Measurement(**one) for one in entry.get("measured", ()))
    pretrain = Pretraining(**entry.get("pretrain", {}))
    shared = dict(entry.get("swept", {}))
    values = shared.pop("recipes", {})
    swept = {value: Measurement(recipe=recipe, **shared) for recipe, value in values.items()}
    return Statement(**(entry | {"measured": measured, "pretrain": pretrain, "swept": swept}))


def _table(entry: dict[str, Any]) -> Table:
    shared, groups = entry.get("pretrain", {}), entry.get("norm_groups", {})
    return Table(
        **{name: entry[name] for name in ("id", "number", "kind", "title")},
        facts=tuple(entry.get("facts", ())),
        columns=tuple(Column(**column) for column in entry["columns"]),
        attributes={one["key"]: one["label"] for one in entry.get("attributes", ())},
        rows=tuple(_row(row, shared, groups) for row in entry["rows"]),
        points=tuple(
            _row(point | {"recipe": recipe, "method": recipe.partition("/")[0]}, shared, groups)
            for point in [{"label": entry["number"], "role": "own", "values": {}}]
            for recipe in entry.get("recipes", ())
        ),
    )


def _row(entry: dict[str, Any], shared: dict[str, Any], norm_groups: dict[str, int]) -> Row:
    """Return a row; its pre-training is completed by the table's settings for all rows.

    norm_groups: the table's groups of shuffled batch norm by method.
    """
    if entry.get("method") in norm_groups:
        shared = shared | {"norm_groups": norm_groups[entry["method"]]}
    attrs = entry.get("attrs", {})
    printed = {key: attrs[key] for key in ("arch", "epochs", "batch_size") if key in attrs}
    settings = shared | entry.get("pretrain", {}) | printed
    if "arch" in settings:
        settings["arch"] = ARCHITECTURES.get(settings["arch"], settings["arch"])
    return Row(**(entry | {"pretrain": Pretraining(**settings)}))
