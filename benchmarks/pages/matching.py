"""Published rows of a backbone: those of its recipe, and the random ones of untrained weights."""

import math
import re

from benchmarks.pages.published import Row, Table
from benchmarks.pages.records import STAND_IN_TEXTURE, Model

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
    if model.changed:
        differences.append(f"ours changed its recipe in {model.changed}")
    if model.texture == STAND_IN_TEXTURE:
        differences.append(f"textures by style transfer, ours by {STAND_IN_TEXTURE}")
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
