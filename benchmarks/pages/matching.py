"""Published rows of a backbone: which row of a table shows its method and pre-training."""

import math
import re

from benchmarks.pages.published import Row, Table
from benchmarks.pages.records import Model

TRAIN_IMAGES = {"in1k": 1_281_167, "in100": 126_689, "cifar10": 50_000, "cifar100": 50_000}
"""Number of images of the data sets that the papers pre-train on."""

ROLES = ("own", "baseline_trained", "baseline_reeval", "supervised", "random", "unclear", "cited")
"""Roles of rows from the paper's own runs to numbers of others."""


def published_counterparts(published: Table, model: Model) -> tuple[list[Row], str]:
    """Return the published rows of the model's method and pre-training, and why there are none.

    The reason is empty if there are rows. Two rows are returned only if no number of theirs was
    measured by the same task and protocol.
    """
    if not model.method:
        why = "the file does not say how it was made (`--as RECIPE` declares it)"
        return [], f"no published counterpart: {why}"
    if model.table_row and not names_table(model.table_row, published.id):
        return [], f"no published counterpart: the recipe reproduces {model.table_row}"
    same = rows_of_method(published, model)
    if not same:
        return [], f"no published counterpart: the table has no row of {model.method}"
    fitting = [row for row in same if not pretraining_differences(row, model)]
    if not fitting:
        why = "; ".join(pretraining_differences(same[0], model))
        return [], f"no verdict: the paper pre-trained {same[0].label} differently ({why})"
    best = [
        row
        for row in fitting
        if not any(
            _are_rivals(published, row, r) and _rank(r, model) < _rank(row, model) for r in fitting
        )
    ]
    if any(_are_rivals(published, row, other) for row in best for other in best):
        labels = ", ".join(row.label for row in best)
        return [], f"no verdict: several published rows fit ({labels})"
    return best, ""


def rows_of_method(published: Table, model: Model) -> list[Row]:
    """Return the published rows of the model's method and variant, of any pre-training length.

    Rows that name the model's recipe come before those whose variant has words of its name.
    """
    same = [row for row in published.rows if model.method and row.method == model.method]
    if not model.heads:
        same = [row for row in same if not row.heads]
        named = [row for row in same if row.recipe == model.recipe]
        named = named or [row for row in same if model.recipe in row.beside]
        if named:
            return named
    same = [row for row in same if _fits_variant(row, model)]
    # rows of MoCo and MoCo v2 may both fit a recipe; the one with more words is the right one
    most = max(map(_num_details, same), default=0)
    return [row for row in same if _num_details(row) == most]


def _fits_variant(row: Row, model: Model) -> bool:
    """Return whether a model has the row's heads, or its recipe the words of the row's variant."""
    if model.heads:  # the augmentations are those of the used heads, not of the recipe
        return {*row.heads, *row.variant.split()} <= set(model.heads)
    return set(row.variant.split()) <= _words(model.recipe)


def _num_details(row: Row) -> int:
    """Return how many words and heads tell the row from others of its method."""
    return len(row.variant.split()) + len(row.heads)


def _are_rivals(published: Table, row: Row, other: Row) -> bool:
    """Return whether two rows have numbers of one task and protocol."""
    return (
        row is not other
        and row.task == other.task
        and any(
            row.values.get(column.key) is not None
            and other.values.get(column.key) is not None
            and row.protocol_of(column) == other.protocol_of(column)
            for column in published.columns
        )
    )


def _rank(row: Row, model: Model) -> tuple[int, int]:
    """Return the sort key of rows that fit a model: other batch or crops last, then by role."""
    batch = row.pretrain.batch_size or row.attrs.get("batch")
    pairs = ((batch, model.batch_size), (row.attrs.get("multi_crop"), model.crops))
    differing = sum(bool(printed and ours) and printed != ours for printed, ours in pairs)
    return differing, ROLES.index(row.role)


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
    if model.changed:
        differences.append(f"ours changed its recipe in {model.changed}")
    return differences


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9+]+", text.lower()))


def trained_on(data: str, model: Model) -> bool:
    """Return whether a model was pre-trained on a data set.

    Its recipe or folder must name the set. The number of images, if known, must fit within 1 %.
    """
    count = model.num_images
    right_size = count is None or math.isclose(count, TRAIN_IMAGES[data], rel_tol=0.01)
    return data in _words(f"{model.recipe} {model.data}") and right_size
