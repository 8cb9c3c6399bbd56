"""Numbers that papers print, from published/<paper>.yaml and from installed packages."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.results.differences import TWO_SIDED, Score
from pretrain.running.plugins import with_plugins
from pretrain.running.reading import read_yaml

FOLDER = Path(__file__).parents[1] / "published"
FIRST = ("jcl", "co2", "lorac", "uniclr", "looc")
"""Papers that come first, in this order; others follow by name."""

ELSEWHERE = "elsewhere"
"""Protocol of a number that no task of this suite measures."""

Mark = bool | Literal["default"] | None


@dataclass(frozen=True, kw_only=True)
class Column:
    """One printed column of numbers."""

    key: str
    label: str
    block: str = ""
    """Heading that the paper prints above several columns."""
    task: str = ""
    """Id of the measuring task; empty if the rows name it."""
    metric: str = ""
    """Name of the number in that task's record."""
    protocol: str = ""
    """Protocol of the paper for the task, without the version."""
    higher_is_better: bool | None
    """Direction of the metric; None for settings."""
    no_verdict: str = ""
    """Reason why its numbers get no verdict; empty if they get one."""


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """Pre-training of a published row; None for settings that the paper omits."""

    arch: str | None = None
    data: str | None = None
    epochs: int | str | None = None
    batch_size: int | None = None
    norm_groups: int | None = None
    """Groups of shuffled batch norm, one per GPU.

    0 if the paper does not state the number, None if the method shuffles nothing.
    """


@dataclass(frozen=True, kw_only=True)
class Row:
    """One printed row."""

    label: str
    role: str
    """One of own, baseline_trained, baseline_reeval, cited, supervised, random or unclear."""
    group: str = ""
    """Group of rows that contains it."""
    task: str = ""
    """Id of the task, if rows and not columns name it."""
    protocol: str = ""
    """Protocol of the row, if it differs from the column's."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """Protocols of cited numbers by task id; ELSEWHERE if not implemented."""
    method: str = ""
    """Name of the method in METHODS; empty if not implemented."""
    recipe: str = ""
    """Recipe of `python -m pretrain --list` that trains the row's backbone.

    For weights that nobody trains here (no method): the name of their published file in
    transfer/encoders/public_files.yaml.
    """
    beside: Mapping[str, str] = field(default_factory=dict)
    """How runs of other recipes differ from the printed run."""
    heads: Mapping[str, int] = field(default_factory=dict)
    """Index of each used head by name; empty for all heads."""
    pretrain: Pretraining = Pretraining()
    attrs: Mapping[str, int | str | None] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Check marks; None if the paper omits one, "default" for its asterisk."""
    marks_inferred: bool = False
    """Marks are taken from the text, not from the printed table."""
    values: Mapping[str, float | None]
    bracketed: Mapping[str, float] = field(default_factory=dict)
    """Second numbers, printed in brackets, which the paper measured itself."""
    markers: Mapping[str, str] = field(default_factory=dict)
    """Footnote marks by value; "bracketed" holds the bracket's mark."""
    ci: Mapping[str, float] = field(default_factory=dict)
    """Half width of the printed confidence interval."""
    note: str = ""
    unstated: str = ""
    """Settings that the paper omits; the row's numbers get no verdict."""

    def number(self, column: Column) -> float | None:
        """Return the number to compare with; a bracketed one has precedence."""
        return self.bracketed.get(column.key, self.values.get(column.key))

    def no_verdict(self, column: Column) -> str:
        """Return why a number gets no verdict, or an empty string."""
        if self.role == "unclear":
            return "the paper does not say who trained and measured it"
        if self.role == "cited" or (self.task or column.task) in self.protocols:
            return "the paper cites the number from elsewhere"
        return self.unstated or column.no_verdict

    @property
    def own_protocols(self) -> set[str]:
        """Implemented protocols that the row names itself."""
        return {self.protocol, *self.protocols.values()} - {"", ELSEWHERE}

    def protocol_for(self, task: str, column_protocol: str) -> str:
        """Return the protocol for a task; empty if it is not implemented.

        Cited numbers have no protocol, unless the row names one.
        """
        protocol = self.protocols.get(task, self.protocol)
        if protocol == ELSEWHERE:
            return ""
        return protocol or ("" if self.role == "cited" else column_protocol)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One printed table, or the statements on a figure."""

    id: str
    number: str
    kind: Literal["results", "settings", "text"]
    title: str
    facts: tuple[str, ...]
    """Facts that readers must know, such as the meaning of footnote marks."""
    columns: tuple[Column, ...]
    attributes: Mapping[str, str]
    """Labels of row descriptions, by key in `attrs` or `marks`."""
    rows: tuple[Row, ...]
    points: tuple[Row, ...] = ()
    """Points of a figure without printed numbers, as rows with a recipe."""

    @property
    def file_name(self) -> str:
        """File name of the table's page, such as lorac_table2.md."""
        return self.id.replace("/", "_") + ".md"

    @property
    def tasks(self) -> set[str]:
        """Ids of the tasks; an average counts as its twelve members."""
        named = {column.task for column in self.columns} | {row.task for row in self.rows}
        return (named - {"", AVERAGE}) | (set(transfer_tasks()) if AVERAGE in named else set())


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Our result that is compared with a number of the running text."""

    value: str
    """Key of the number in the statement's values."""
    recipe: str
    """Recipe of the backbone."""
    minus: str = ""
    """Recipe of the backbone to subtract; empty for none."""
    task: str = ""
    """Task id; empty for a metric of the last epoch of pre-training."""
    protocol: str = ""
    """Protocol of the paper for the task, without the version."""
    metric: str
    """Name of the number in the task's record or the pre-training log."""
    no_verdict: str = ""
    """Reason why the number gets no verdict; empty if it gets one."""

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
    """Assumptions of our runs where the paper omits settings, as sentences."""
    pretrain: Pretraining = Pretraining()
    """Pre-training of recipes that are in no table."""
    measured: tuple[Measurement, ...] = ()
    """Results to compare with the numbers; none for settings and curve shapes."""
    swept: Mapping[float, Measurement] = field(default_factory=dict)
    """Results at each value of a swept setting, to compare best values."""

    @property
    def recipes(self) -> tuple[str, ...]:
        """Return all recipes that the statement is compared with."""
        measurements = (*self.measured, *self.swept.values())
        return tuple(recipe for measurement in measurements for recipe in measurement.recipes)


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
    """Keys of further tasks: of figures, and protocol variants."""

    @property
    def reported(self) -> dict[tuple[str, str], None]:
        """Return task id and protocol (without version) of every number, in order."""
        return {
            (row.task or column.task, row.protocol or column.protocol): None
            for table in self.tables
            for column in table.columns
            # a table without rows still reports the tasks of its columns
            for row in table.rows or (Row(label="", role="", values={}),)
            if row.task or column.task
            if (row.protocol or column.protocol) != ELSEWHERE
        }


# our names of architectures, by the names that the papers print
ARCHITECTURES = {"ResNet-18": "resnet18", "ResNet-50": "resnet50", "R50": "resnet50"}


@cache
def papers() -> tuple[Paper, ...]:
    """Return all papers: first FIRST, then others, then plugins.

    Raises PluginError if two papers have the same name.
    """
    own_files = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}
    files = with_plugins(own_files, "papers")
    names = [*FIRST, *(name for name in files if name not in FIRST)]
    return tuple(load_paper(files[name]) for name in names)


@cache
def published_recipes() -> dict[str, Pretraining]:
    """Return the pre-training of each recipe that a paper's number names.

    Settings that one table omits are taken from the other tables.
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


def completed(first: Pretraining, second: Pretraining) -> Pretraining:
    """Return the first settings, with None filled in from the second."""
    stated = {name: value for name, value in vars(first).items() if value is not None}
    return Pretraining(**vars(second) | stated)


AVERAGE = "transfer_linear/average"
"""Column of LORAC's Table II: the mean over twelve tasks."""
CORRUPTED = "imagenet_c100_eval"
NUM_ORIGINAL_IMAGES = 5_000
"""Number of original images of that task.

All corruptions of one image are correct or wrong together.
"""


@cache
def num_test_images(task: str) -> int | None:
    """Return the published number of test images of a task, if known."""
    from transfer.datasets.catalog import DATASETS
    from transfer.tasks import TASKS, reading_of

    evaluation = next((TASKS[key] for key in TASKS if reading_of(key)[0] == task), None)
    if task == CORRUPTED:
        return NUM_ORIGINAL_IMAGES
    return (DATASETS[evaluation.datasets()[0]].counts.get("test") or None) if evaluation else None


def published_score(row: Row, column: Column, value: float) -> Score:
    """Return a printed number with its printed or binomial errors."""
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
    """Return the twelve task ids in the order of LORAC's Table II."""
    tasks = (column.task for column in published_table("lorac/table2").columns)
    return tuple(task for task in tasks if task != AVERAGE)


def published_table(table_id: str) -> Table:
    """Return a table by id, such as lorac/table2; KeyError if unknown."""
    return {table.id: table for _, table in all_tables()}[table_id]


def all_tables() -> list[tuple[Paper, Table]]:
    """Return every table with its paper, in order."""
    return [(paper, table) for paper in papers() for table in paper.tables]


class Printed(NamedTuple):
    """A number in a table of results or in a figure's text."""

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
        """Return the protocol of the number; empty if it is not implemented."""
        return self.row.protocol_for(self.task, self.column.protocol)

    @property
    def where(self) -> str:
        """Return paper and table, such as "LORAC, Table II"."""
        return f"{self.paper.name}, {self.table.number}"

    @property
    def label(self) -> str:
        """Return the label of the column, with the task's row group."""
        return f"{self.row.group} {self.column.label}" if self.row.task else self.column.label


@cache
def printed() -> tuple[Printed, ...]:
    """Return every printed number of result tables and figure texts, in order."""
    return tuple(
        Printed(paper, table, row, column, value)
        for paper, table in all_tables()
        if table.kind != "settings"
        for row in table.rows
        for column in table.columns
        if (value := row.number(column)) is not None
    )


def published_count_words() -> str:
    """Return how many numbers are printed, in total and by paper.

    Settings, second numbers in brackets, printed intervals and numbers of the running text are not
    counted.
    """
    counts = Counter(number.paper.name for number in printed())
    by_paper = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"{counts.total()} published numbers in the tables of {len(counts)} papers: {by_paper}"


@cache
def best_published(task: str, protocol: str, metric: str) -> tuple[float, str] | None:
    """Return the highest self-supervised number and where it is printed.

    Only numbers measured under this protocol count; `protocol` has no version. None if no paper
    prints one.
    """
    candidates = [
        (number.value, f"{number.row.label}, {number.paper.name} {number.table.number}")
        for number in printed()
        if number.row.role != "supervised" and number.protocol == protocol
        if number.task == task and number.column.metric == metric
    ]
    return max(candidates, key=lambda candidate: candidate[0], default=None)


def load_paper(path: Path) -> Paper:
    """Read one file of published/."""
    content = read_yaml(path)
    return Paper(
        id=content["paper"],
        **{name: content[name] for name in ("name", "title", "venue", "arxiv")},
        tables=tuple(_table(entry) for entry in content["tables"]),
        stated=tuple(_statement(entry) for entry in content.get("stated", ())),
        also=tuple(content.get("also", ())),
    )


def _statement(entry: dict[str, Any]) -> Statement:
    measured = tuple(Measurement(**content) for content in entry.get("measured", ()))
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
        attributes={
            attribute["key"]: attribute["label"] for attribute in entry.get("attributes", ())
        },
        rows=tuple(_row(row, shared, groups) for row in entry["rows"]),
        points=tuple(
            _row(point | {"recipe": recipe, "method": recipe.partition("/")[0]}, shared, groups)
            for point in [{"label": entry["number"], "role": "own", "values": {}}]
            for recipe in entry.get("recipes", ())
        ),
    )


def _row(entry: dict[str, Any], shared: dict[str, Any], norm_groups: dict[str, int]) -> Row:
    """Return a row; settings that it omits are taken from the table.

    norm_groups: the table's groups of shuffled batch norm by method.
    """
    if entry.get("method") in norm_groups:
        shared = shared | {"norm_groups": norm_groups[entry["method"]]}
    attrs = entry.get("attrs", {})
    printed = {key: attrs[key] for key in ("arch", "epochs", "batch_size") if key in attrs}
    settings = shared | printed | entry.get("pretrain", {})
    if "arch" in settings:
        settings["arch"] = ARCHITECTURES.get(settings["arch"], settings["arch"])
    return Row(**(entry | {"pretrain": Pretraining(**settings)}))
