"""One picture: our numbers beside the papers', task by task.

A number with a published counterpart is drawn as its difference from it, on bands of the task's
tolerance. All other numbers are drawn where they lie between 0 and 100, with the highest published
number as context, and a sentence says why they may not be compared.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pages.against import Pair, compared_everywhere
from benchmarks.pages.blocks import Block, Column, sort_into_blocks
from benchmarks.pages.entries import NOT_A_NUMBER, table_entry
from benchmarks.pages.published import best_published, papers
from benchmarks.pages.records import Model
from benchmarks.pages.table_rows import row_label
from benchmarks.pages.verdict import tolerance
from benchmarks.report_parts.contents import Contents, Details

SIGNS = {"pass": "✓", "warn": "!", "fail": "✗", "not judged": "–", NOT_A_NUMBER: "?"}
MEANINGS = {
    "pass": "within the spread of re-runs of one recipe",
    "warn": "further away than re-runs usually are",
    "fail": "not the published number",
    "not judged": "cited, of unclear origin or on unstated conditions, see the paper's table",
    NOT_A_NUMBER: "without a difference",
}
WIDEST = 10.0
"""Largest difference that the axis shows, in points; marks beyond it are drawn at its end."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One number of ours beside its published counterpart; positions are percent of the width."""

    backbone: str
    where: str
    ours: str
    paper: str
    points: float
    verdict: str
    sign: str
    passes: float
    warns: float
    x: float
    pass_from: float
    pass_width: float
    warn_from: float
    warn_width: float
    clipped: bool
    """The difference lies beyond the axis."""
    details: str

    @property
    def judged(self) -> bool:
        """Return whether the number has a verdict."""
        return self.verdict not in ("not judged", NOT_A_NUMBER)

    @property
    def finite(self) -> bool:
        """Return whether there is a difference to draw."""
        return self.verdict != NOT_A_NUMBER


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One backbone of a strip."""

    name: str
    value: float
    text: str
    untrained: bool
    details: str

    @property
    def finite(self) -> bool:
        """Return whether the number has a place on the strip."""
        return math.isfinite(self.value)

    @property
    def place(self) -> float:
        """Return the place in percent of the width; a number beyond the strip is at its end."""
        return max(0.0, min(100.0, self.value))


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Numbers of one task that may be compared with each other, but not with a paper's."""

    task: str
    metric: str
    protocol: str
    why: str
    marks: tuple[Mark, ...]
    best_printed: float | None
    """Highest published number of a self-supervised method; None if no paper prints one."""
    printed_by: str

    @property
    def trained(self) -> tuple[Mark, ...]:
        """Return the backbones that were pre-trained, the best first."""
        marks = (mark for mark in self.marks if not mark.untrained)
        return tuple(sorted(marks, key=lambda mark: -mark.value if mark.finite else math.inf))

    @property
    def drawn(self) -> tuple[Mark, ...]:
        """Return the marks that have a place on the strip."""
        return tuple(mark for mark in self.marks if mark.finite)

    @property
    def random(self) -> tuple[Mark, ...]:
        """Return the random initializations."""
        return tuple(mark for mark in self.marks if mark.untrained)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Differences by task, the axis that they share, and strips of all other numbers."""

    differences: Mapping[str, Sequence[Difference]]
    half_axis: int
    """Points from the axis's middle to its end."""
    strips: Sequence[Strip]
    counts: Mapping[str, int]
    """Number of differences by verdict, in the order of SIGNS."""


def picture(contents: Contents, details: Details) -> Picture:
    """Return the picture of a results folder."""
    pairs = list(_pairs(contents))
    judged = [abs(pair.difference) for _, pair in pairs if pair.ours.finite]
    widest = max((tolerance(pair.task).warns for _, pair in pairs), default=1.0)
    # a quarter wider than the widest band, so that its end can be seen
    half_axis = math.ceil(min(WIDEST, max([1.25 * widest, *judged])))
    differences: dict[str, list[Difference]] = {}
    for where, pair in pairs:
        drawn = _difference(where, pair, half_axis, details)
        differences.setdefault(pair.task, []).append(drawn)
    compared = {file for _, pair in pairs for file in pair.files}
    order = {task: i for i, task in enumerate(_printed_tasks())}
    differences = {task: differences[task] for task in sorted(differences, key=order.__getitem__)}
    strips = sorted(
        _strips(contents, details, compared),
        key=lambda strip: (order.get(strip.task, len(order)), strip.task),
    )
    words = [one.verdict for rows in differences.values() for one in rows]
    return Picture(
        differences=differences,
        half_axis=half_axis,
        strips=strips,
        counts={word: words.count(word) for word in SIGNS if word in words},
    )


def _pairs(contents: Contents) -> Iterable[tuple[str, Pair]]:
    """Yield the place in the paper and the numbers that we and the paper have."""
    for paper, table, pair in compared_everywhere(contents.results.done):
        yield f"{paper.name}, {table.number}: {pair.row.label}, {pair.label}", pair


def _printed_tasks() -> list[str]:
    """Return the tasks of all tables in the order in which the papers print them."""
    tables = (table for paper in papers() for table in paper.tables if table.kind != "settings")
    tasks = (r.task or column.task for t in tables for r in t.rows for column in t.columns)
    return list(dict.fromkeys(tasks))


def _difference(where: str, pair: Pair, half_axis: int, details: Details) -> Difference:
    limits, points = tolerance(pair.task), pair.difference
    unjudged = "not judged" if pair.ours.finite else NOT_A_NUMBER
    word = pair.verdict if pair.judged else unjudged

    def place(value: float) -> float:
        inside = max(-half_axis, min(half_axis, value))
        return round(50 + 50 * inside / half_axis, 3)

    return Difference(
        backbone=pair.model.label,
        where=where,
        ours=pair.ours.text(2),
        paper=f"{pair.paper:g}",
        points=points,
        verdict=word,
        sign=SIGNS[word],
        passes=limits.passes,
        warns=limits.warns,
        x=place(points) if pair.ours.finite else 50.0,
        pass_from=place(-limits.passes),
        pass_width=place(limits.passes) - place(-limits.passes),
        warn_from=place(-limits.warns),
        warn_width=place(limits.warns) - place(-limits.warns),
        clipped=pair.ours.finite and abs(points) > half_axis,
        details=details.of_files(pair.files),
    )


def _strips(contents: Contents, details: Details, compared: set[str]) -> Iterable[Strip]:
    """Yield a strip for each task and kind of conditions without a published counterpart."""
    for block in sort_into_blocks(contents.results.done):
        for column in block.columns:
            marks = [
                mark
                for model in block.models
                for mark in _marks(block, model, column, details, compared)
            ]
            if not marks:
                continue
            metric = block.metric_and_heading(column)[0]
            best, printed_by = best_published(*column, metric) or (None, "")
            yield Strip(
                task=column[0],
                metric=metric,
                protocol=block.protocols([column]),
                why=_why(block),
                marks=tuple(marks),
                best_printed=best,
                printed_by=printed_by,
            )


def _why(block: Block) -> str:
    if block.comparable:
        return "No paper prints this number for the same method and pre-training."
    return f"{block.heading}."


def _marks(
    block: Block, model: Model, column: Column, details: Details, compared: set[str]
) -> Iterable[Mark]:
    """Yield the mark of a backbone, unless it is missing or drawn as a difference."""
    metric = block.metric_and_heading(column)[0]
    entry = table_entry(block, model, column, metric)
    if entry.score is None or compared & set(entry.files):
        return
    yield Mark(
        name=row_label(model, block.models),
        value=round(entry.score.mean, 3),
        text=entry.score.text(1),
        untrained=model.untrained or model.method == "random",
        details=details.of_files(entry.files),
    )
