"""Curves over pre-training: a page per task with the curves side by side, a CSV file per curve."""

import csv
import io
from collections.abc import Sequence

from benchmarks.blocks import Block, Column, arrange
from benchmarks.cells import cell
from benchmarks.markdown import table
from benchmarks.records import CURVES, Model, Results
from benchmarks.suites import primary_metric

__all__ = ["CURVES", "MARK", "curve_files", "curve_pages"]

MARK = "@"
"""Between a curve's name and its snapshot's, in the name of a backbone."""


def curve_of(model: Model) -> str:
    """The curve that a snapshot belongs to."""
    return model.name.rpartition(MARK)[0]


def curve_pages(results: Results, command: str) -> dict[str, str]:
    """File name -> page, for each task that was run on snapshots."""
    blocks = arrange(results.done, ())
    tasks = dict.fromkeys(task for block in blocks for task, _ in block.columns)
    return {f"curves_{task.replace('/', '_')}.md": _page(task, blocks, command) for task in tasks}


def _page(task: str, blocks: Sequence[Block], command: str) -> str:
    metric = primary_metric(task)
    parts = [
        f"# {task} during pre-training",
        f"{metric}, percent; a column per run, a row per epoch of pre-training. "
        f"Made by `{command}`.",
    ]
    for block in blocks:
        for column in block.columns:
            if column[0] == task:
                parts += [f"## {block.heading}", *_table(block, column, metric)]
    return "\n\n".join(parts) + "\n"


def _table(block: Block, column: Column, metric: str) -> list[str]:
    task, protocol = column
    scores = {
        (curve_of(model), float(model.epochs or 0)): score.text(2)
        for model in block.models
        if (score := cell(block, model, task, protocol, metric).score) is not None
    }
    curves = sorted({curve for curve, _ in scores})
    epochs = sorted({epoch for _, epoch in scores})
    rows = [[f"{epoch:g}", *(scores.get((c, epoch), "") for c in curves)] for epoch in epochs]
    first = next(results[0] for (_, key), results in block.done.items() if key == column)
    said = [f"protocol {block.protocols([column])}", f"seed {first.seed}", *first.departures]
    return [table(["epoch", *curves], rows), f"- {'; '.join(said)}."]


def curve_files(results: Results) -> dict[str, str]:
    """File name -> CSV of one curve: epoch, and every metric of the task."""
    files = {}
    for block in arrange(results.done, ()):
        if block.version:  # older settings or data
            continue
        for column in block.columns:
            points: dict[str, list[tuple[float, dict[str, float]]]] = {}
            for (model, other), done in block.done.items():
                if other == column:
                    point = (float(model.epochs or 0), dict(done[0].metrics))
                    points.setdefault(curve_of(model), []).append(point)
                    schedule = done[0].schedule
            for curve, found in points.items():
                files[f"{curve}.{column[0].replace('/', '_')}.{schedule}.csv"] = _csv(found)
    return files


def _csv(points: list[tuple[float, dict[str, float]]]) -> str:
    text = io.StringIO()
    names = list(points[0][1])
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["epoch", *names])
    writer.writerows(
        [f"{epoch:g}", *(f"{metrics[name]:.4f}" for name in names)]
        for epoch, metrics in sorted(points, key=lambda point: point[0])
    )
    return text.getvalue()
