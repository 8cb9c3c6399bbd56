"""Plan of a run, before it does anything: lines of cells and of groups, printed by --plan."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from pretrain.running.processes import num_gpus
from transfer.cells.request import Cell, departures, finished
from transfer.cells.shared_classifier import without_classifier
from transfer.datasets.catalog import DATASETS
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.pass_hours import IMAGES_PER_GPU_SECOND
from transfer.getting import overview
from transfer.getting.assemble import Getting
from transfer.getting.overview import sources_of
from transfer.running.measured_rates import ASSUMED, Rates, rates_of_this_machine
from transfer.tasks import task_of
from transfer.tasks.task import PlannedTask, Task

State = Literal["run", "cached", "no data", "unfit"]


@dataclass(frozen=True)
class PlannedCell:
    """Cell, and what the run would do with it."""

    cell: Cell
    state: State
    missing: tuple[str, ...]
    """Data sets that are absent."""
    gpu_hours: float
    why: str = ""
    """Reason why the backbone is unfit for the task or why the data are too few, or a note on a
    shared classifier or head."""
    rates: Rates = ASSUMED
    """Measured rates that the hours follow from, as far as there are any."""


def plan_cell(cell: Cell) -> PlannedCell:
    """Return the plan of a cell from its data and records; nothing is computed."""
    missing = tuple(
        key for key in cell.task.datasets() if not DATASETS[key].is_there(cell.settings.data)
    )
    if missing:
        return PlannedCell(cell, "no data", missing, 0.0)
    why = cell.task.unfit(cell.backbone)
    if why:
        return PlannedCell(cell, "unfit", (), 0.0, why)
    if finished(cell) is not None:
        return PlannedCell(cell, "cached", (), 0.0)
    too_few = cell.task.too_few_images(cell.settings.data)
    if too_few:
        return PlannedCell(cell, "no data", (), 0.0, too_few)
    rates = rates_of_this_machine(cell.settings.runs)
    hours = cell.task.gpu_hours(cell.computing, rates)
    return PlannedCell(cell, "run", (), hours, classifier_note(cell), rates)


def classifier_note(cell: Cell) -> str:
    """Return whose classifier the cell will use and whether that is trained; empty for none."""
    needed = cell.needed
    if needed is None:
        return ""
    missing = without_classifier(needed)
    state = f"which is trained first, because {missing}" if missing else "which is finished"
    return f"uses the classifier of {needed.key}, {state}"


def with_classifiers(rows: Sequence[PlannedCell]) -> list[PlannedCell]:
    """Return the rows, and before rows that use a missing classifier the row that trains it.

    That row is added once, whether or not it was requested. It is added too if the record of the
    training exists but not its weights.
    """
    by_path: dict[Path, PlannedCell] = {}
    for row in rows:
        needed = row.cell.needed
        if needed is not None and row.state == "run" and finished(needed) is None:
            by_path[needed.path] = replace(plan_cell(needed), why="other cells use its classifier")
        by_path.setdefault(row.cell.path, row)
    return list(by_path.values())


def with_passes_counted_once(rows: Sequence[PlannedCell]) -> list[PlannedCell]:
    """Return the rows, each pass over images at the cost of its longest training.

    A row costs what it needs beyond the rows before it that read the same pass.
    """
    first: dict[object, tuple[str, float]] = {}
    priced = []
    for row in rows:
        read = pass_of(row)
        if read is not None:
            key, hours = first.get(read, ("", 0.0))
            first[read] = (key or row.cell.key, max(hours, row.gpu_hours))
            if key:
                left = max(0.0, row.gpu_hours - hours)
                why = f"continues the pass of {key}" if left else f"its head is trained by {key}"
                row = replace(row, gpu_hours=left, why=why)
        priced.append(row)
    return priced


def pass_of(row: PlannedCell) -> object:
    """Return what identifies the pass over images that a row will read; None if it shares none."""
    cell, shared_pass = row.cell, row.cell.task.shared_pass
    if row.state != "run" or shared_pass is None:
        return None
    return (cell.backbone.sha256, cell.seed, shared_pass)


def render_plan(rows: list[PlannedCell]) -> str:
    """Return the plan as a text table."""
    lines = [
        f"{'backbone':<16}{'task':<30}{'protocol':<22}{'engine':<16}{'seed':<6}"
        f"{'state':<9}{'GPU h':>7}  data"
    ]
    for row in rows:
        cell = row.cell
        have = (
            "missing: " + ", ".join(row.missing) if row.missing else ", ".join(cell.task.datasets())
        ) + (f"; {row.why}" if row.why else "")
        hours = f"{row.gpu_hours:.2f}" if row.state == "run" else "-"
        lines.append(
            f"{cell.backbone.name:<16}{cell.key:<30}{cell.task.protocol:<22}"
            f"{cell.task.engine:<16}{cell.seed:<6}{row.state:<9}{hours:>7}  {have}"
        )
    rates = rates_of(rows)
    counts = {state: sum(row.state == state for row in rows) for state in get_args(State)}
    assumed = (
        f" if a ResNet-50 passes {IMAGES_PER_GPU_SECOND:.0f} images of 224 px a second "
        "(assumed, not measured)"
    ) * (not rates.features)
    others = sum(row.gpu_hours for row in rows if row.cell.task.distributed_training is None)
    lines.append(
        f"{counts['run']} to run, {counts['cached']} finished, {counts['no data']} without data, "
        f"{counts['unfit']} with an unfit backbone; about {others:.1f} GPU hours{assumed}"
    )
    lines.append(f"GPU hours: {rates.source}")
    lines += _task_notes(rows)
    lines += sorted(_missing_data_notes(rows))
    return "\n".join(lines)


def rates_of(rows: Sequence[PlannedCell]) -> Rates:
    """Return the measured rates that the hours of these rows follow from, if any do."""
    return next((row.rates for row in rows if row.rates.gpu), ASSUMED)


def _task_notes(rows: Sequence[PlannedCell]) -> list[str]:
    """Return the notes of each task class on those of its cells that will run."""
    groups: dict[type, list[PlannedTask[Task]]] = {}
    for row in rows:
        if row.state == "run":
            cell = row.cell
            work = PlannedTask(cell.key, cell.task, cell.seed, row.gpu_hours, row.rates)
            groups.setdefault(type(cell.task), []).append(work)
    options = rows[0].cell.settings.training if rows else TrainingOptions()
    return [
        line
        for group in groups.values()
        for line in group[0].task.plan_notes(group, options, num_gpus())
    ]


def _missing_data_notes(rows: list[PlannedCell]) -> set[str]:
    return {f"how to get {key}: {DATASETS[key].how_to_get}" for row in rows for key in row.missing}


def protocol_notes(rows: list[PlannedCell]) -> list[str]:
    """Return the deviations of the cells from the papers' protocols, each line once."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row.state != "no data":
            for line in departures(row.cell):
                notes.setdefault(line, []).append(row.cell.key)
    return [
        f"departs from {task_of(keys[0]).protocol if len(keys) == 1 else 'the papers'}: {line} "
        f"({len(set(keys))} task{'s' * (len(set(keys)) != 1)})"
        for line, keys in notes.items()
    ]


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
    return "\n".join([*text, _rate_line(rows), *_crops_line(rows), *_missing_lines(rows)])


def _crops_line(rows: Sequence[PlannedCell]) -> list[str]:
    """Return how much --keep-crops may keep of the images that will be read."""
    kept = {
        (key, type(row.cell.task), row.cell.backbone.input.size_px): DATASETS[key].counts
        for row in rows
        if row.state == "run" and row.cell.settings.keep_crops
        for key in row.cell.task.datasets() * (not row.cell.task.trains_backbone)
    }
    sizes = [
        3 * side**2 * (counts.get("trainval", 0) + counts.get("test", 0))
        for (_, _, side), counts in kept.items()
    ]
    return [f"--keep-crops: up to {sum(sizes) / 1e9:.1f} GB below --runs"] if sizes else []


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
