"""Images within one limit for the whole page; whatever is left out is counted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from benchmarks.report_parts.by_task import TaskPart
from benchmarks.report_parts.galleries import Figure, Queries, within_page
from benchmarks.report_parts.pretraining import Pretraining

MOST_CHARACTERS = 9_500_000
"""Largest page: it can still be sent by mail."""
FIGURES_SHARE = 0.4
"""Share of the remaining characters that figures may take before pictures of tasks."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """Parts of the page with those of their images for which there is room."""

    by_task: tuple[TaskPart, ...]
    pretraining: Pretraining
    figures: tuple[Figure, ...]
    figures_left_out: int
    pictures_left_out: int
    """Pictures of tasks, and queries with their nearest images."""
    views_left_out: int

    def left_out(self) -> dict[str, str]:
        """Return a sentence for each part that lacks images."""
        return {
            "figures": _words(self.figures_left_out, "figure", "results/figures"),
            "pictures": _words(
                self.pictures_left_out, "picture", "the .gallery folders and records in results"
            ),
            "views": _words(self.views_left_out, "picture", "views.jpg in the runs’ folders"),
        }


def within_limit(
    by_task: Sequence[TaskPart], runs: Pretraining, figures: Sequence[Figure], limit: int
) -> Images:
    """Return the parts with so many images that these have at most `limit` characters."""
    logs = []
    left = limit
    for log in runs.logs:
        fits = len(log.views) <= left
        left -= len(log.views) if fits else 0
        logs.append(log if fits else replace(log, views=""))
    shown, for_figures = [], int(left * FIGURES_SHARE)
    for figure in figures:
        if figure.source and len(figure.source) <= for_figures:
            for_figures -= len(figure.source)
            left -= len(figure.source)
            shown.append(figure)
    parts = []
    for part in by_task:
        queries, left = _fitting(part.queries, left)
        parts.append(replace(part, queries=queries))
    kept = iter(within_page([gallery for part in parts for gallery in part.galleries], left))
    parts = [replace(p, galleries=tuple(islice(kept, len(p.galleries)))) for p in parts]
    return Images(
        by_task=tuple(parts),
        pretraining=replace(runs, logs=tuple(logs)),
        figures=tuple(shown),
        figures_left_out=len(figures) - len(shown),
        pictures_left_out=_num_pictures(by_task) - _num_pictures(parts),
        views_left_out=sum(bool(log.views) for log in runs.logs) - sum(bool(g.views) for g in logs),
    )


def _fitting(queries: Sequence[Queries], left: int) -> tuple[tuple[Queries, ...], int]:
    """Return the queries that fit, and the characters that are left."""
    found = []
    for one in queries:
        rows = []
        for row in one.rows:
            size = sum(len(picture.source) for picture in (row.query, *row.nearest))
            if size <= left:
                left -= size
                rows.append(row)
        found += [replace(one, rows=tuple(rows))] if rows else []
    return tuple(found), left


def _num_pictures(parts: Sequence[TaskPart]) -> int:
    galleries = sum(len(gallery.pictures) for part in parts for gallery in part.galleries)
    rows = [row for part in parts for one in part.queries for row in one.rows]
    return galleries + sum(1 + sum(bool(p.source) for p in row.nearest) for row in rows)


def _words(number: int, thing: str, place: str) -> str:
    verb = " is" if number == 1 else "s are"
    return f"{number} {thing}{verb} left out for size: {place}" if number else ""
