"""Plan of a run, before it does anything: a line per cell, printed by run_all.py --plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from pretrain.running.processes import num_gpus
from transfer.cells.execution import without_classifier
from transfer.cells.request import Cell, departures, finished
from transfer.datasets.catalog import DATASETS
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.pass_hours import IMAGES_PER_GPU_SECOND
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
