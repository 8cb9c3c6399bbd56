"""Curves over pre-training: a page per task with the curves side by side, a CSV file per curve."""

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.pages.blocks import Block, Column, sort_into_blocks
from benchmarks.pages.entries import table_entry
from benchmarks.pages.records import Model, Results
from benchmarks.pages.table_rows import escape, table

CURVE_SEPARATOR = "@"
"""Separator of the curve's and the snapshot's name in the name of a backbone."""


@dataclass(frozen=True)
class CurvePage:
    """Page of the curves of one task."""

    file_name: str
    title: str
    text: str


def run_of(model: Model) -> str:
    """Return the pre-training run that a snapshot belongs to."""
    return model.name.rpartition(CURVE_SEPARATOR)[0]


def curve_of(model: Model) -> str:
    """Return the curve of a snapshot: its run, and its conditions if they differ."""
    return (
        f"{run_of(model)} ({model.other_conditions})" if model.other_conditions else run_of(model)
    )


def curve_pages(results: Results, command: str) -> list[CurvePage]:
    """Return the page of each task that was run on snapshots."""
    parts: dict[str, list[str]] = {}
    for block in sort_into_blocks(results.done, results.failed, group_key=run_of):
        for column in block.columns:
            parts.setdefault(column[0], []).extend(_section(block, column))
    return [_page(task, parts[task], command) for task in sorted(parts)]


def _page(task: str, parts: list[str], command: str) -> CurvePage:
    title = f"{task} during pre-training"
    head = [
        f"# {title}",
        f"Percent; a column per run, a row per epoch of pre-training. Made by `{command}`.",
    ]
    text = "\n\n".join([*head, *parts]) + "\n"
    return CurvePage(f"curves_{task.replace('/', '_')}.md", title, text)


def _section(block: Block, column: Column) -> list[str]:
    """Return the part for one protocol: heading, a table per metric, conditions and failures."""
    done = [(m, results[0]) for (m, key), results in block.done.items() if key == column]
    parts = [f"## {block.heading}, protocol {column[1]}"]
    for metric in dict.fromkeys(name for _, result in done for name in result.metrics):
        parts += [f"{metric}:", _table(block, column, metric)]
    if done:
        seeds = ", ".join(str(seed) for seed in sorted({result.seed for _, result in done}))
        departures = dict.fromkeys(words for _, result in done for words in result.departures)
        of_all = [words for words in departures if all(words in r.departures for _, r in done)]
        named = [f"protocol {block.protocols([column])}", f"seed {seeds}", *of_all]
        parts.append(f"- {'; '.join(named)}.")
        own = {curve_of(m): [w for w in r.departures if w not in of_all] for m, r in done}
        parts += [f"- {curve}: {'; '.join(words)}." for curve, words in own.items() if words]
    for (model, key), failed in block.failed.items():
        if key == column:
            parts += [f"- {model.name} failed: {escape(failure.reason)}" for failure in failed]
    return parts


def _table(block: Block, column: Column, metric: str) -> str:
    scores = {
        (curve_of(model), float(model.epochs or 0)): score.text(2)
        for model in block.models
        if (score := table_entry(block, model, column, metric).score) is not None
    }
    curves = sorted({curve for curve, _ in scores})
    epochs = sorted({epoch for _, epoch in scores})
    rows = [[f"{epoch:g}", *(scores.get((c, epoch), "") for c in curves)] for epoch in epochs]
    return table(["epoch", *curves], rows)


def curve_files(results: Results) -> dict[str, str]:
    """Return a CSV text per curve, by file name, with the epoch and every metric of the task.

    Results that do not share a column of the page do not share a file either.
    """
    files = {}
    for block in sort_into_blocks(results.done, group_key=run_of):
        for column in block.columns:
            points: dict[tuple[str, str], list[tuple[float, Mapping[str, float]]]] = {}
            for (model, other), done in block.done.items():
                if other == column:
                    point = (float(model.epochs or 0), done[0].metrics)
                    points.setdefault((run_of(model), model.other_conditions), []).append(point)
                    schedule = done[0].schedule
            kind = [column[0], block.protocols([column]), schedule, *_kind(block)]
            for (run, apart), curve in points.items():
                words = [*kind, apart] if apart else kind
                files[f"{'.'.join([run, *map(_as_file_name, words)])}.csv"] = _csv(curve)
    return files


def _kind(block: Block) -> list[str]:
    """Return why a block's numbers may not be compared with others, except for the schedule."""
    words = block.reasons.words(schedule=False)
    return [*words, f"other {block.version}"] if block.version else [*words]


def _as_file_name(words: str) -> str:
    return re.sub(r"[ /]+", "-", words)


def _csv(points: list[tuple[float, Mapping[str, float]]]) -> str:
    text = io.StringIO()
    names = list(points[0][1])
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["epoch", *names])
    writer.writerows(
        [f"{epoch:g}", *(f"{metrics[name]:.4f}" for name in names)]
        for epoch, metrics in sorted(points, key=lambda point: point[0])
    )
    return text.getvalue()
