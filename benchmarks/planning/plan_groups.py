"""Plan of a run on one screen: a line per group of tasks, and how to get what is missing."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from benchmarks.planning.plan import PlannedCell, State, rates_of, with_passes_counted_once
from transfer.datasets.catalog import DATASETS
from transfer.frozen.pass_hours import IMAGES_PER_GPU_SECOND
from transfer.getting import overview
from transfer.getting.assemble import Getting
from transfer.getting.overview import sources_of
from transfer.running.measured_rates import rates_of_this_machine

HEADER = ("tasks", "cells", "to run", "finished", "no data", "unfit", "GPU hours")
MOST_NOTES = 6
"""Deviations from the papers' protocols that are shown."""
MOST_WHYS = 6
"""Reasons of unfit backbones, and of data sets that are too small, that are shown."""


def render_plan_groups(rows: Sequence[PlannedCell]) -> str:
    """Return a table with the counts and GPU hours of each group of tasks, and what is missing."""
    later = hours_of_missing_data(rows)
    groups: dict[str, list[PlannedCell]] = {}
    for row in rows:
        groups.setdefault(row.cell.task.heading, []).append(row)
    lines = [_line(name, group, later) for name, group in groups.items()]
    text = _aligned([HEADER, *lines, _line("all", rows, later)])
    return "\n".join([*text, _rate_line(rows), *_missing_lines(rows)])


def hours_of_missing_data(rows: Sequence[PlannedCell]) -> dict[int, float]:
    """Return the GPU hours, by the id of the row, of the cells whose data sets are not there.

    A pass over images counts once; cells that the backbone is unfit for are left out.
    """
    absent = [row for row in rows if row.missing and not row.cell.task.unfit(row.cell.backbone)]
    if not absent:
        return {}
    rates = rates_of_this_machine(absent[0].cell.settings.runs)
    priced = with_passes_counted_once(
        [
            replace(row, state="run", gpu_hours=row.cell.task.gpu_hours(row.cell.computing, rates))
            for row in absent
        ]
    )
    return {id(row): own.gpu_hours for row, own in zip(absent, priced, strict=True)}


def shortened(notes: Sequence[str]) -> list[str]:
    """Return the first notes, and how many more there are."""
    more = len(notes) - MOST_NOTES
    return [*notes[:MOST_NOTES], *[f"... and {more} more, see --plan full"] * (more > 0)]


def _line(name: str, rows: Sequence[PlannedCell], later: Mapping[int, float]) -> tuple[str, ...]:
    counts = [sum(row.state == state for row in rows) for state in get_args(State)]
    hours = sum(row.gpu_hours for row in rows if row.state == "run")
    words = [str(count) if count else "-" for count in counts]
    missing = sum(later.get(id(row), 0.0) for row in rows)
    shown = [f"{hours:.2f}"] * bool(counts[0]) + [f"({missing:.2f})"] * bool(missing)
    return (name, str(len(rows)), *words, " ".join(shown) or "-")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def _rate_line(rows: Sequence[PlannedCell]) -> str:
    """Return where the hours come from."""
    rates = rates_of(rows)
    assumed = (
        f"; frozen networks: {IMAGES_PER_GPU_SECOND:.0f} images of 224 px a second through a "
        "ResNet-50, assumed"
    )
    return f"GPU hours: {rates.source}{assumed * (not rates.features)}"


def _missing_lines(rows: Sequence[PlannedCell]) -> list[str]:
    """Return the absent data sets, the other reasons why cells do not run, and how to see all."""
    missing = sorted({key for row in rows for key in row.missing})
    whys = list(dict.fromkeys(f"{row.cell.key}: {row.why}" for row in rows if _is_kept_from(row)))
    lines = [f"missing data, whose hours stand in brackets: {', '.join(missing)}"] * bool(missing)
    lines += whys[:MOST_WHYS]
    lines += [f"... and {len(whys) - MOST_WHYS} more"] * (len(whys) > MOST_WHYS)
    if any(row.state == "no data" and not row.missing for row in rows):
        lines.append("python -m transfer describe-data KEY announces an excerpt of a data set")
    return [*lines, "--plan full prints a line per cell, and how to get each data set"]


def _is_kept_from(row: PlannedCell) -> bool:
    return bool(row.why) and row.state in ("unfit", "no data")


def get_data_command(rows: Sequence[PlannedCell]) -> str:
    """Return its size and the command on two lines; empty if no set is missing that can be got."""
    missing = dict.fromkeys(key for row in rows for key in row.missing if DATASETS[key].sources)
    if not missing:
        return ""
    data = rows[0].cell.settings.data
    sources = sources_of(tuple(missing))
    getting = Getting(data=data)
    by_hand = [
        source.key
        for source in sources
        if source.access != "download" and not source.is_there(data)
    ]
    note = f"; {', '.join(by_hand)} from your own archives, --from FOLDER" if by_hand else ""
    words = ["get-data", *missing, "--data", str(data)]
    return (
        f"missing data: {overview.summary(sources, getting)}{note}:\n"
        f"python -m transfer {shlex.join(words)}"
    )
