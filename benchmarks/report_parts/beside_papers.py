"""Our numbers beside the papers': each difference with its interval, and what follows from it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pages.against import Pair, compared_everywhere
from benchmarks.pages.differences import NOT_A_NUMBER
from benchmarks.pages.published import papers
from benchmarks.report_parts.contents import Contents, Details

SIGNS = {
    "reproduced": "✓",
    "undecided": "?",
    "above": "▲",
    "below": "▼",
    "not judged": "–",
    NOT_A_NUMBER: "!",
}
MEANINGS = {
    "reproduced": "0 lies in the interval, which reaches no further than 1 point",
    "undecided": "0 lies in the interval, which is wider",
    "above": "the interval lies above 0",
    "below": "the interval lies below 0",
    "not judged": "cited, of unclear origin or without errors, see the paper's table",
    NOT_A_NUMBER: "without a difference",
}
WIDEST = 10.0
"""Largest difference that the axis shows, in points; what lies beyond is drawn at its end."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One number of ours beside its published counterpart; places are percent of the width."""

    backbone: str
    where: str
    ours: str
    paper: str
    points: float
    interval: str
    verdict: str
    sign: str
    x: float
    low: float
    high: float
    clipped: bool
    """The difference lies beyond the axis."""
    address: str

    @property
    def finite(self) -> bool:
        """Return whether there is a difference to draw."""
        return self.verdict != NOT_A_NUMBER


@dataclass(frozen=True, kw_only=True)
class BesidePapers:
    """Differences by task, and the axis that they share."""

    by_task: Mapping[str, Sequence[Beside]]
    half_axis: int
    """Points from the axis's middle to its end."""
    counts: Mapping[str, int]
    """Number of differences by verdict, in the order of SIGNS."""


def beside_papers(contents: Contents, details: Details) -> BesidePapers:
    """Return every number that we and a paper have, in the order of the papers' tables."""
    pairs = list(_pairs(contents))
    ends = [abs(end) for _, pair in pairs for end in pair.difference.interval if math.isfinite(end)]
    half_axis = math.ceil(min(WIDEST, max([1.0, *ends])))
    by_task: dict[str, list[Beside]] = {task: [] for task in _printed_tasks()}
    for where, pair in pairs:
        by_task[pair.task].append(_beside(where, pair, half_axis, details))
    words = [one.verdict for rows in by_task.values() for one in rows]
    return BesidePapers(
        by_task={task: rows for task, rows in by_task.items() if rows},
        half_axis=half_axis,
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


def _beside(where: str, pair: Pair, half_axis: int, details: Details) -> Beside:
    apart = pair.difference
    unjudged = "not judged" if pair.ours.finite else NOT_A_NUMBER
    word = pair.verdict if pair.judged else unjudged

    def place(value: float) -> float:
        inside = max(-half_axis, min(half_axis, value)) if math.isfinite(value) else 0.0
        return round(50 + 50 * inside / half_axis, 3)

    low, high = map(place, apart.interval if apart.known else (apart.points, apart.points))
    return Beside(
        backbone=pair.model.label,
        where=where,
        ours=pair.ours.text(2),
        paper=f"{pair.paper:g}",
        points=apart.points,
        interval=apart.interval_text() if apart.known else "",
        verdict=word,
        sign=SIGNS[word],
        x=place(apart.points),
        low=low,
        high=high,
        clipped=pair.ours.finite and abs(apart.points) > half_axis,
        address=details.of_files(pair.files),
    )
