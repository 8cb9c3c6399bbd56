"""Images within one limit for the whole page; whatever is left out is counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.report_parts.by_task import TaskPart
from benchmarks.report_parts.galleries import Figure, Gallery, Neighbors, Queries
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
    left_out: Mapping[str, str]
    """A sentence for each part that lacks images, or no words."""


@dataclass
class Room:
    """Characters that are left for images."""

    left: int

    def takes(self, *sources: str) -> bool:
        """Return whether there was room for these addresses of images, which is now taken."""
        size = sum(map(len, sources))
        fits = size <= self.left
        self.left -= size * fits
        return fits


def within_limit(
    by_task: Sequence[TaskPart], runs: Pretraining, figures: Sequence[Figure], limit: int
) -> Images:
    """Return the parts with so many images that these have at most `limit` characters."""
    room = Room(limit)
    logs = tuple(log if room.takes(log.views) else replace(log, views="") for log in runs.logs)
    for_figures = Room(int(room.left * FIGURES_SHARE))
    shown = tuple(one for one in figures if one.source and for_figures.takes(one.source))
    room.takes(*(one.source for one in shown))
    parts = [replace(part, queries=_fitting(part.queries, room)) for part in by_task]
    every = [
        picture for part in parts for gallery in part.galleries for picture in gallery.pictures
    ]
    share = min(1.0, room.left / max(sum(len(picture.source) for picture in every), 1))
    parts = [
        replace(part, galleries=tuple(_thinned(one, share, room) for one in part.galleries))
        for part in parts
    ]
    num_pictures = _num_pictures(by_task) - _num_pictures(parts)
    num_views = sum(bool(log.views) for log in runs.logs) - sum(bool(log.views) for log in logs)
    folders = "the .gallery folders and records in results"
    return Images(
        by_task=tuple(parts),
        pretraining=replace(runs, logs=logs),
        figures=shown,
        left_out={
            "figures": _words(len(figures) - len(shown), "figure", "results/figures"),
            "pictures": _words(num_pictures, "picture", folders),
            "views": _words(num_views, "picture", "views.jpg in the runs’ folders"),
        },
    )


def _fitting(queries: Sequence[Queries], room: Room) -> tuple[Queries, ...]:
    """Return the queries for which there is room."""

    def fits(row: Neighbors) -> bool:
        return room.takes(*(picture.source for picture in (row.query, *row.nearest)))

    found = (replace(one, rows=tuple(filter(fits, one.rows))) for one in queries)
    return tuple(one for one in found if one.rows)


def _thinned(gallery: Gallery, share: float, room: Room) -> Gallery:
    """Return a share of the pictures, spread over all so that every kind of outcome is shown."""
    number = max(1, int(len(gallery.pictures) * share))
    spread = (gallery.pictures[i * len(gallery.pictures) // number] for i in range(number))
    return replace(gallery, pictures=tuple(one for one in spread if room.takes(one.source)))


def _num_pictures(parts: Sequence[TaskPart]) -> int:
    galleries = sum(len(gallery.pictures) for part in parts for gallery in part.galleries)
    rows = [row for part in parts for one in part.queries for row in one.rows]
    return galleries + sum(1 + sum(bool(p.source) for p in row.nearest) for row in rows)


def _words(number: int, thing: str, place: str) -> str:
    verb = " is" if number == 1 else "s are"
    return f"{number} {thing}{verb} left out for size: {place}" if number else ""
