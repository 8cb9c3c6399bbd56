"""Our comparable numbers beside the published ones of the same method and pre-training."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.pages.blocks import Block, sort_into_blocks
from benchmarks.pages.differences import Difference, Score, difference
from benchmarks.pages.entries import table_entry
from benchmarks.pages.published import Column, Paper, Row, Table, published_score, result_tables
from benchmarks.pages.records import STAND_IN_TEXTURE, Model, Result, grouped
from benchmarks.pages.run_deviations import run_deviation
from benchmarks.pages.table_rows import plain, table

HEADER = ("ours", "published", "number", "ours", "paper", "diff.", "95 % interval", "verdict")


NO_ERRORS = "the record does not hold what its number's error follows from; evaluate again"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One number that we and the paper have."""

    model: Model
    row: Row
    column: Column
    ours: Score
    paper: float
    no_verdict: str
    """Reason why the paper's number is not judged; empty if it is."""
    files: tuple[str, ...] = ()
    """Paths of our number's records, below the results."""

    @property
    def label(self) -> str:
        """Return the label of the number's column, with the group of rows that names its task."""
        group = self.row.group
        return f"{group} {self.column.label}" if self.row.task else self.column.label

    @cached_property
    def difference(self) -> Difference:
        """Ours minus the paper's."""
        paper = published_score(self.row, self.column, self.paper)
        return difference(self.ours, paper, self.task)

    @property
    def why_not_judged(self) -> str:
        """Return why the number gets no verdict; empty if it gets one."""
        return self.no_verdict or ("" if self.difference.known else NO_ERRORS)

    @property
    def judged(self) -> bool:
        """Return whether the number gets a verdict."""
        return not self.why_not_judged

    @property
    def word(self) -> str:
        """Return the verdict, or that there is none."""
        return self.difference.verdict() if self.judged else "not judged"

    @property
    def task(self) -> str:
        """Return the id of the task that measures the number."""
        return self.row.task or self.column.task


def comparison_lines(published: Table, block: Block) -> list[str]:
    """Return a table of differences, and a line for each of our rows that cannot be compared."""
    pairs, apart = compared_numbers(published, block)
    if not pairs and not apart:
        return ["No comparable row yet: nothing was run under the paper's protocol on full data."]
    rows = [_line(pair) for pair in pairs]
    grid = [table(HEADER, rows, left=3), ""] if rows else []
    sources = dict.fromkeys(_deviation_source(pair.task) for pair in pairs if pair.judged)
    remarks = dict.fromkeys(_remark(pair) for pair in pairs if pair.model.recipe in pair.row.beside)
    lines = [f"- {plain(model.label)}: {why}." for model, why in apart.items()]
    return [*grid, *sources, *_unjudged_lines(pairs), *remarks, *lines]


def compared_numbers(published: Table, block: Block) -> tuple[list[Pair], dict[Model, str]]:
    """Return every number that we and the paper have, and our other rows with the reason.

    block: our results under a paper's protocol on full data.
    """
    pairs: list[Pair] = []
    apart: dict[Model, str] = {}
    for model in block.models:
        rows, why = published_counterparts(published, model)
        of_model = [pair for row in rows for pair in _pairs(published, block, model, row)]
        pairs += of_model
        if not of_model:
            apart[model] = why or "no number to compare"
    return pairs, apart


def compared_everywhere(results: Sequence[Result]) -> Iterator[tuple[Paper, Table, Pair]]:
    """Yield every number that we and a paper have, with where it is printed."""
    block = comparable_block(results)
    for paper, published in result_tables():
        for pair in compared_numbers(published, block)[0]:
            yield paper, published, pair


def comparable_block(results: Sequence[Result]) -> Block:
    """Return our results under a paper's protocol on full data."""
    empty = Block(done={}, failed={})
    return next((block for block in sort_into_blocks(results) if block.comparable), empty)


def missing_row_lines(published: Table, block: Block) -> list[str]:
    """Return a line for each published row without a result of ours: the runs that it needs.

    Only results under the paper's protocol on full data count. The last line names the rows that
    nothing here can produce.
    """
    measured = [
        row
        for model in block.models
        for row in published_counterparts(published, model)[0]
        if model.recipe not in row.beside
    ]
    absent = [row for row in published.rows if row not in measured]
    for point in published.points:
        own = [model for model in block.models if model.recipe == point.recipe]
        absent += [point] if all(pretraining_differences(point, model) for model in own) else []
    lines = [f"- {row.label}: {needs}" for row in absent if (needs := _needed_runs(row))]
    unbuilt = dict.fromkeys(row.label for row in absent if not _needed_runs(row))
    lines += [f"- not implemented here: {', '.join(unbuilt)}"] if unbuilt else []
    return list(dict.fromkeys(lines))


def _needed_runs(row: Row) -> str:
    """Return the runs that a row needs; empty if nothing here can produce it."""
    if row.role == "random":
        return "needs no pre-training, `--random`"
    if not row.recipe:
        return ""
    if not row.heads:
        return f"needs pre-training `{row.recipe}`"
    numbers = ",".join(map(str, row.heads.values()))
    return (
        f"needs pre-training `{row.recipe}`, then `--heads {numbers}` ({' and '.join(row.heads)})"
    )


def _deviation_source(task: str) -> str:
    """Return the deviation from run to run; one line for all twelve sets of linear transfer."""
    deviation = run_deviation(task)
    return f"- {task.partition('/')[0]}: {deviation.points:g} from run to run; {deviation.source}."


def _unjudged_lines(pairs: Sequence[Pair]) -> list[str]:
    """Return a line for each reason why numbers are not judged, with their rows."""
    unjudged = [pair for pair in pairs if not pair.judged]
    rows = grouped((pair.why_not_judged, pair.row.label) for pair in unjudged)
    return [
        f"- not judged ({', '.join(dict.fromkeys(labels))}): {why}." for why, labels in rows.items()
    ]


def _remark(pair: Pair) -> str:
    """Return the line on a recipe that is another reading of the printed row."""
    recipe, row, name = pair.model.recipe, pair.row, plain(pair.model.label)
    return (
        f"- → {name} is no run of the printed row {row.label} (`{row.recipe}`), but "
        f"another reading of it: `{recipe}`, {row.beside[recipe]}."
    )


def _pairs(published: Table, block: Block, model: Model, row: Row) -> list[Pair]:
    """Return every number of a row that we have, too.

    Numbers that were measured elsewhere stand beside ours under the protocol of the column.
    """
    return [
        Pair(
            model=model,
            row=row,
            column=column,
            ours=ours,
            paper=paper,
            no_verdict=row.no_verdict(column),
            files=entry.files,
        )
        for column in published.columns
        if (paper := row.number(column)) is not None
        for place in [(row.task or column.task, row.protocol_of(column) or column.protocol)]
        for entry in [table_entry(block, model, place, column.metric)]
        if (ours := entry.score) is not None
    ]


def _line(pair: Pair) -> list[str]:
    other_reading = " (another reading)" if pair.model.recipe in pair.row.beside else ""
    return [
        f"→ {plain(pair.model.label)}",
        pair.row.label + other_reading,
        pair.label,
        pair.ours.text(2),
        f"{pair.paper}",
        f"{pair.difference.points:+.2f}",
        pair.difference.interval_text() if pair.difference.known else "–",
        pair.word,
    ]


TRAIN_IMAGES = {"in1k": 1_281_167, "in100": 126_689, "cifar10": 50_000, "cifar100": 50_000}
"""Number of images of the data sets that the papers pre-train on."""


def published_counterparts(published: Table, model: Model) -> tuple[list[Row], str]:
    """Return the published rows of the model's recipe and pre-training, and why there are none.

    The reason is empty if there are rows.
    """
    if not model.method:
        why = "the file does not say how it was made (`--as RECIPE` declares it)"
        return [], f"no published counterpart: {why}"
    rows = rows_of_recipe(published, model)
    if not rows:
        origin = "a random initialization" if model.untrained else model.recipe or model.method
        heads = f" with heads {', '.join(model.heads)} alone" if model.heads else ""
        return [], f"no published counterpart: no row of the table is of {origin}{heads}"
    fitting = [row for row in rows if not pretraining_differences(row, model)]
    why = "; ".join(pretraining_differences(rows[0], model))
    return fitting, "" if fitting else f"no verdict: the paper's {rows[0].label} differs ({why})"


def rows_of_recipe(published: Table, model: Model) -> list[Row]:
    """Return the rows that name the model's recipe and heads, of any pre-training length."""
    if model.untrained:
        return [row for row in published.rows if row.role == "random"]
    return [
        row
        for row in published.rows
        if model.recipe
        and model.recipe in (row.recipe, *row.beside)
        and set(model.heads) == set(row.heads)
    ]


def pretraining_differences(row: Row, model: Model) -> list[str]:
    """Return the differences in pre-training; settings that the paper omits are not compared."""
    paper = row.pretrain
    differences = []
    if paper.arch is not None and paper.arch != model.arch:
        differences.append(f"network {paper.arch}, ours {model.arch}")
    if paper.data is not None and not trained_on(paper.data, model):
        differences.append(f"data {paper.data}, ours {model.data}")
    if paper.epochs is not None and str(paper.epochs) != model.epochs:
        differences.append(f"epochs {paper.epochs}, ours {model.epochs}")
    differences += filter(None, [norm_difference(paper.norm_groups, model.norm_groups)])
    if model.changed:
        differences.append(f"ours changed its recipe in {model.changed}")
    if model.texture == STAND_IN_TEXTURE:
        differences.append(f"textures by style transfer, ours by {STAND_IN_TEXTURE}")
    return differences


def norm_difference(paper: int | None, ours: int | None) -> str:
    """Return the difference in the groups of shuffled batch norm; empty if there is none.

    A paper that does not say how many it has (0) has at least two: one group shuffles nothing.
    """
    if paper is None or ours is None or (ours == paper if paper else ours > 1):
        return ""
    return f"groups of shuffled batch norm {paper or 'not stated, at least 2'}, ours {ours}"


def norm_group_lines(rows: Sequence[Row]) -> list[str]:
    """Return lines on the groups of shuffled batch norm with which rows were trained."""
    labels = grouped((row.pretrain.norm_groups, row.label) for row in rows)
    stated = [
        f"{number} ({', '.join(dict.fromkeys(names))})"
        for number, names in sorted((n, names) for n, names in labels.items() if n)
    ]
    lines = []
    if stated:
        lines.append(
            f"Groups of shuffled batch norm, one per GPU: {'; '.join(stated)}. Ours are GPUs times "
            "`--bn-splits`, and a run with another number has no verdict."
        )
    if silent := ", ".join(dict.fromkeys(labels.get(0, ()))):
        lines.append(
            f"The paper does not say over how many groups (GPUs) the batch norm of {silent} is "
            "shuffled; ours are GPUs times `--bn-splits`, and a run with one group, which shuffles "
            "nothing, has no verdict."
        )
    return lines


def trained_on(data: str, model: Model) -> bool:
    """Return whether a model was pre-trained on a data set.

    Its recipe or folder must name the set. The number of images, if known, must fit within 1 %.
    """
    count = re.search(r"(\d+) images", model.data)
    right_size = not count or math.isclose(int(count[1]), TRAIN_IMAGES[data], rel_tol=0.01)
    words = re.findall(r"[a-z0-9+]+", f"{model.recipe} {model.data}".lower())
    return data in words and right_size
