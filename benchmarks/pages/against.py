"""Our comparable numbers beside the published ones of the same method and pre-training."""

import math
import re
from collections.abc import Sequence

from benchmarks.pages.blocks import Block, arrange
from benchmarks.pages.entries import Cell, Score, average, cell
from benchmarks.pages.markdown import table
from benchmarks.pages.published import AVERAGE, Column, Row, Table
from benchmarks.pages.records import Model, Result
from benchmarks.pages.verdict import tolerance, verdict

TRAIN_IMAGES = {"in1k": 1_281_167, "in100": 126_689, "cifar10": 50_000, "cifar100": 50_000}
"""Of the sets that the papers pre-train on."""

RANDOM = "random initialisation"
"""Method of a backbone that was never trained, in its records."""
DESIGNATED = {"color", "rotation", "texture"}
"""What a head of LooC++ may not be invariant to."""

HEADER = ("ours", "published", "number", "ours", "paper", "diff.", "verdict", "pass / warn up to")


def comparison_lines(published: Table, results: Sequence[Result]) -> list[str]:
    """A table of differences, then a line for each row that has none."""
    blocks = [block for block in arrange(results, ()) if not block.reasons]
    if not blocks:
        return ["No comparable row yet: nothing was run under the paper's protocol on full data."]
    rows: list[list[str]] = []
    sources: dict[str, None] = {}
    apart: list[str] = []
    for model in blocks[0].models:
        fitting, why = counterparts(published, model)
        pairs = [pair for row in fitting for pair in _pairs(published, blocks[0], model, row)]
        rows += [_line(model, *pair) for pair in pairs]
        sources |= {_source(row.task or column.task): None for row, column, _, _ in pairs}
        if not pairs:
            apart.append(f"- {model.label}: {why or 'no number to compare'}.")
    grid = [table(HEADER, rows, left=3), ""] if rows else []
    return [*grid, *sources, *apart]


def needed_lines(published: Table, results: Sequence[Result]) -> list[str]:
    """The published rows that nobody has measured at the paper's length, and what would make them;
    last those that nothing here makes."""
    blocks = [block for block in arrange(results, ()) if not block.reasons]
    models = blocks[0].models if blocks else ()
    measured = [row for model in models for row in counterparts(published, model)[0]]
    absent = [row for row in published.rows if row not in measured and not _random(row, models)]
    absent += [point for point in published.points if not any(_same(point, m) for m in models)]
    lines = [f"- {row.label}: {needs}" for row in absent if (needs := _needs(row))]
    unbuilt = dict.fromkeys(row.label for row in absent if not _needs(row))
    lines += [f"- not built here: {', '.join(unbuilt)}"] if unbuilt else []
    return list(dict.fromkeys(lines))


def _random(row: Row, models: Sequence[Model]) -> bool:
    """Whether it is the random row, and one of the models is a random network of its kind."""
    alike = (m for m in models if row.pretrain.arch in (None, m.arch))
    return row.role == "random" and any(model.method == RANDOM for model in alike)


def _same(point: Row, model: Model) -> bool:
    return point.recipe == model.recipe and not _other_settings(point, model)


def _needs(row: Row) -> str:
    """What makes the row; empty where nothing here does."""
    if row.role == "random":
        return "needs no pre-training, `--random`"
    if not row.recipe:
        return ""
    words = row.variant.split()
    if "heads" not in words:
        return f"needs pre-training `{row.recipe}`"
    # the recipe's name tells its heads in order; the first is invariant to everything
    order = row.recipe.split("-")[-len(DESIGNATED & _words(row.recipe)) :]
    numbers = ["0", *(str(1 + order.index(word)) for word in words if word != "heads")]
    named = " and ".join(["invariant", *(word for word in words if word != "heads")])
    return f"needs pre-training `{row.recipe}`, then `--heads {','.join(numbers)}` ({named})"


def _source(task: str) -> str:
    """Why the tolerance is what it is; one line for all twelve sets of linear transfer."""
    return f"- {task.partition('/')[0]}: {tolerance(task).source}."


def counterparts(published: Table, model: Model) -> tuple[list[Row], str]:
    """Published rows of the model's method and pre-training; none, and why, if that fails."""
    if not model.method:
        return [], "no published counterpart: the file does not say how it was made"
    if model.table_row and not stands_for(model.table_row, published.id):
        return [], f"no published counterpart: the recipe stands for {model.table_row}"
    same = of_method(published, model)
    if not same:
        return [], f"no published counterpart: the table has no row of {model.method}"
    fitting = [row for row in same if not _other_settings(row, model)]
    if not fitting:
        told = "; ".join(_other_settings(same[0], model))
        return [], f"no verdict: {same[0].label} of the paper was pre-trained otherwise ({told})"
    per_task = {row.task for row in fitting}
    if len(per_task) < len(fitting):
        labels = ", ".join(row.label for row in fitting)
        return [], f"no verdict: several published rows fit ({labels})"
    return fitting, ""


def of_method(published: Table, model: Model) -> list[Row]:
    """Published rows of the model's method and variant, however long they were pre-trained."""
    same = [row for row in published.rows if model.method and row.method == model.method]
    # of some heads of a model, the augmentations are these heads', not all of its recipe's
    same = [r for r in same if set(r.variant.split()) <= _words(model.heads or model.recipe)]
    # of MoCo and MoCo v2 that both fit a recipe, the more particular one
    most = max((len(row.variant.split()) for row in same), default=0)
    return [row for row in same if len(row.variant.split()) == most]


def stands_for(table_row: str, table: str) -> bool:
    """Whether a recipe's words, such as "co2/table1-3: MoCo + CO2", name the table.

    What a paper says in its text alone, a recipe need not name.
    """
    paper, _, number = table.partition("/table")
    if not number:
        return True
    for first, last in re.findall(rf"{paper}/table(\d+)(?:-(\d+))?", table_row):
        if int(first) <= int(number) <= int(last or first):
            return True
    return False


def _other_settings(row: Row, model: Model) -> list[str]:
    """In what the pre-training differs; what the paper does not say is not compared."""
    paper = row.pretrain
    found = []
    if paper.arch is not None and paper.arch != model.arch:
        found.append(f"network {paper.arch}, ours {model.arch}")
    if paper.data is not None and not _trained_on(paper.data, model):
        found.append(f"data {paper.data}, ours {model.data}")
    if paper.epochs is not None and str(paper.epochs) != model.epochs:
        found.append(f"epochs {paper.epochs}, ours {model.epochs}")
    if model.changed:
        found.append(f"ours left its recipe in {model.changed}")
    return found


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9+]+", text.lower()))


def _trained_on(data: str, model: Model) -> bool:
    """The recipe or the folder names the set, and the number of images, if told, is the set's."""
    images = re.search(r"(\d+) images", model.data)
    right_size = images is None or math.isclose(int(images[1]), TRAIN_IMAGES[data], rel_tol=0.01)
    return data in _words(f"{model.recipe} {model.data}") and right_size


def _pairs(
    published: Table, block: Block, model: Model, row: Row
) -> list[tuple[Row, Column, Score, float]]:
    """Every number that both have: ours and the paper's."""
    return [
        (row, column, ours, paper)
        for column in published.columns
        if (paper := row.values.get(column.key)) is not None
        and (ours := _ours(block, model, row, column).score) is not None
    ]


def _line(model: Model, row: Row, column: Column, ours: Score, paper: float) -> list[str]:
    task = row.task or column.task
    gate = tolerance(task)
    return [
        f"→ {model.label}",
        row.label,
        f"{row.group} {column.label}" if row.task else column.label,
        ours.text(2),
        f"{paper}",
        f"{ours.mean - paper:+.2f}",
        verdict(ours.mean - paper, task),
        f"{gate.passes} / {gate.warns}",
    ]


def _ours(block: Block, model: Model, row: Row, column: Column) -> Cell:
    task, protocol = row.task or column.task, row.protocol or column.protocol
    if task == AVERAGE:
        return average(block, model, protocol)
    return cell(block, model, task, protocol, column.metric)
