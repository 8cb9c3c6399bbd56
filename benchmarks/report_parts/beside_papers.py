"""Our numbers beside the papers': each difference with its interval, and what follows from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pages.against import Pair, compared_everywhere
from benchmarks.pages.differences import NOT_A_NUMBER, SIGNS
from benchmarks.pages.published import papers
from benchmarks.report_parts.contents import Contents

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
class BesidePapers:
    """Differences by task, each with its place in the paper, and the axis that they share."""

    by_task: Mapping[str, Sequence[tuple[str, Pair]]]
    half_axis: int
    """Points from the axis's middle to its end."""
    counts: Mapping[str, int]
    """Number of differences by word, in the order of SIGNS."""

    def place(self, points: float) -> float:
        """Return the place of a difference on the axis, in percent of its width."""
        inside = max(-self.half_axis, min(self.half_axis, points)) if math.isfinite(points) else 0.0
        return round(50 + 50 * inside / self.half_axis, 3)


def beside_papers(contents: Contents) -> BesidePapers:
    """Return every number that we and a paper have, in the order of the papers' tables."""
    tables = [table for paper in papers() for table in paper.tables if table.kind != "settings"]
    tasks = (r.task or column.task for t in tables for r in t.rows for column in t.columns)
    by_task: dict[str, list[tuple[str, Pair]]] = {task: [] for task in tasks}
    for paper, table, pair in compared_everywhere(contents.results.done):
        where = f"{paper.name}, {table.number}: {pair.row.label}, {pair.label}"
        by_task[pair.task].append((where, pair))
    pairs = [pair for rows in by_task.values() for _, pair in rows]
    ends = [abs(end) for pair in pairs for end in pair.difference.interval if math.isfinite(end)]
    words = [pair.word for pair in pairs]
    return BesidePapers(
        by_task={task: rows for task, rows in by_task.items() if rows},
        half_axis=math.ceil(min(WIDEST, max([1.0, *ends]))),
        counts={word: words.count(word) for word in SIGNS if word in words},
    )
