"""Our comparable numbers beside the published ones of the same method and pre-training."""

import math
import re
from collections.abc import Sequence

from benchmarks.pages.blocks import Block, sort_into_blocks
from benchmarks.pages.entries import Score, TableEntry, average_entry, table_entry
from benchmarks.pages.markdown import table
from benchmarks.pages.published import AVERAGE, Column, Row, Table
from benchmarks.pages.records import Model, Result
from benchmarks.pages.verdict import tolerance, verdict

TRAIN_IMAGES = {"in1k": 1_281_167, "in100": 126_689, "cifar10": 50_000, "cifar100": 50_000}
"""Number of images of the data sets that the papers pre-train on."""

HEADER = ("ours", "published", "number", "ours", "paper", "diff.", "verdict", "pass / warn up to")


def comparison_lines(published: Table, results: Sequence[Result]) -> list[str]:
    """Return a table of differences, and a line for each of our rows that cannot be compared."""
    blocks = [block for block in sort_into_blocks(results, ()) if block.comparable]
    if not blocks:
        return ["No comparable row yet: nothing was run under the paper's protocol on full data."]
    rows: list[list[str]] = []
    sources: dict[str, None] = {}
    apart: list[str] = []
    for model in blocks[0].models:
        fitting, why = published_counterparts(published, model)
        pairs = [
            pair for row in fitting for pair in _compared_numbers(published, blocks[0], model, row)
        ]
        rows += [_line(model, *pair) for pair in pairs]
        sources |= {_tolerance_source(row.task or column.task): None for row, column, _, _ in pairs}
        if not pairs:
            apart.append(f"- {model.label}: {why or 'no number to compare'}.")
    grid = [table(HEADER, rows, left=3), ""] if rows else []
    return [*grid, *sources, *apart]


def missing_row_lines(published: Table, results: Sequence[Result]) -> list[str]:
    """Return a line for each published row without a result of ours: the runs that it needs.

    Only results under the paper's protocol on full data count. The last line names the rows that
    nothing here can produce.
    """
    blocks = [block for block in sort_into_blocks(results, ()) if block.comparable]
    models = blocks[0].models if blocks else ()
    measured = [row for model in models for row in published_counterparts(published, model)[0]]
    absent = [
        row for row in published.rows if row not in measured and not _has_random_row(row, models)
    ]
    absent += [point for point in published.points if not any(_is_point(point, m) for m in models)]
    lines = [f"- {row.label}: {needs}" for row in absent if (needs := _needed_runs(row))]
    unbuilt = dict.fromkeys(row.label for row in absent if not _needed_runs(row))
    lines += [f"- not implemented here: {', '.join(unbuilt)}"] if unbuilt else []
    return list(dict.fromkeys(lines))


def _has_random_row(row: Row, models: Sequence[Model]) -> bool:
    """Return whether the row is the paper's random one and one of the models is untrained too."""
    alike = (m for m in models if row.pretrain.arch in (None, m.arch))
    return row.role == "random" and any(model.untrained for model in alike)


def _is_point(point: Row, model: Model) -> bool:
    """Return whether a model comes from the recipe of a point of a figure."""
    return point.recipe == model.recipe and not _pretraining_differences(point, model)


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


def _tolerance_source(task: str) -> str:
    """Return the source of a tolerance; one line for all twelve data sets of linear transfer."""
    return f"- {task.partition('/')[0]}: {tolerance(task).source}."


def published_counterparts(published: Table, model: Model) -> tuple[list[Row], str]:
    """Return the published rows of the model's method and pre-training, and why there are none.

    The reason is empty if there are rows.
    """
    if not model.method:
        return [], "no published counterpart: the file does not table_notes how it was made"
    if model.table_row and not names_table(model.table_row, published.id):
        return [], f"no published counterpart: the recipe reproduces {model.table_row}"
    same = rows_of_method(published, model)
    if not same:
        return [], f"no published counterpart: the table has no row of {model.method}"
    fitting = [row for row in same if not _pretraining_differences(row, model)]
    if not fitting:
        why = "; ".join(_pretraining_differences(same[0], model))
        return [], f"no verdict: the paper pre-trained {same[0].label} differently ({why})"
    per_task = {row.task for row in fitting}
    if len(per_task) < len(fitting):
        labels = ", ".join(row.label for row in fitting)
        return [], f"no verdict: several published rows fit ({labels})"
    return fitting, ""


def rows_of_method(published: Table, model: Model) -> list[Row]:
    """Return the published rows of the model's method and variant, of any pre-training length."""
    same = [row for row in published.rows if model.method and row.method == model.method]
    same = [row for row in same if _fits_variant(row, model)]
    # rows of MoCo and MoCo v2 may both fit a recipe; the one with more words is the right one
    most = max(map(_num_details, same), default=0)
    return [row for row in same if _num_details(row) == most]


def _fits_variant(row: Row, model: Model) -> bool:
    """Return whether a model has the row's heads, or its recipe the words of the row's variant."""
    if model.heads:  # the augmentations are those of the used heads, not of the recipe
        return {*row.heads, *row.variant.split()} <= set(model.heads)
    return not row.heads and set(row.variant.split()) <= _words(model.recipe)


def _num_details(row: Row) -> int:
    """Return how many words and heads tell the row from others of its method."""
    return len(row.variant.split()) + len(row.heads)


def names_table(table_row: str, table: str) -> bool:
    """Return whether a recipe's `table_row`, such as "co2/table1-3: MoCo + CO2", names the table.

    Numbers of a paper's running text have no table; every recipe reproduces them.
    """
    paper, _, number = table.partition("/table")
    if not number:
        return True
    for first, last in re.findall(rf"{paper}/table(\d+)(?:-(\d+))?", table_row):
        if int(first) <= int(number) <= int(last or first):
            return True
    return False


def _pretraining_differences(row: Row, model: Model) -> list[str]:
    """Return the differences in pre-training; settings that the paper omits are not compared."""
    paper = row.pretrain
    differences = []
    if paper.arch is not None and paper.arch != model.arch:
        differences.append(f"network {paper.arch}, ours {model.arch}")
    if paper.data is not None and not _trained_on(paper.data, model):
        differences.append(f"data {paper.data}, ours {model.data}")
    if paper.epochs is not None and str(paper.epochs) != model.epochs:
        differences.append(f"epochs {paper.epochs}, ours {model.epochs}")
    if model.changed:
        differences.append(f"ours changed its recipe in {model.changed}")
    return differences


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9+]+", text.lower()))


def _trained_on(data: str, model: Model) -> bool:
    """Return whether a model was pre-trained on a data set.

    Its recipe or folder must name the set. The number of images, if known, must fit within 1 %.
    """
    count = model.num_images
    right_size = count is None or math.isclose(count, TRAIN_IMAGES[data], rel_tol=0.01)
    return data in _words(f"{model.recipe} {model.data}") and right_size


def _compared_numbers(
    published: Table, block: Block, model: Model, row: Row
) -> list[tuple[Row, Column, Score, float]]:
    """Return every number that we and the paper have, as (row, column, ours, paper's)."""
    return [
        (row, column, ours, paper)
        for column in published.columns
        if (paper := row.values.get(column.key)) is not None
        and (ours := _our_entry(block, model, row, column).score) is not None
    ]


def _line(model: Model, row: Row, column: Column, ours: Score, paper: float) -> list[str]:
    task = row.task or column.task
    limits = tolerance(task)
    return [
        f"→ {model.label}",
        row.label,
        f"{row.group} {column.label}" if row.task else column.label,
        ours.text(2),
        f"{paper}",
        f"{ours.mean - paper:+.2f}",
        verdict(ours.mean - paper, task),
        f"{limits.passes} / {limits.warns}",
    ]


def _our_entry(block: Block, model: Model, row: Row, column: Column) -> TableEntry:
    task, protocol = row.task or column.task, row.protocol or column.protocol
    if task == AVERAGE:
        return average_entry(block, model, protocol)
    return table_entry(block, model, task, protocol, column.metric)
