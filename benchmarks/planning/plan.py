"""Plan of a run, before it does anything: lines of cells and of groups, printed by --plan."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from benchmarks.results.final_screen import aligned, first_lines
from benchmarks.results.records import TRANSFER, count_tasks, grouped
from pretrain.running.host_memory import image_memory, image_memory_bytes
from pretrain.running.processes import num_gpus
from transfer.cells.cell import Cell, deviations, finished
from transfer.datasets.catalog import DATASETS, expected_sizes
from transfer.datasets.expected import DataError
from transfer.hours import ASSUMED, core_hours, gpu_hours, measured_seconds
from transfer.tasks import task_of

PHOTOGRAPH_BYTES = 3 * 500 * 375
"""Size of a decoded photograph of ImageNet."""
State = Literal["run", "cached", "no data", "unfit"]


@dataclass(frozen=True)
class PlannedCell:
    """Cell, and what the run would do with it."""

    cell: Cell
    state: State
    missing: tuple[str, ...]
    """Data sets that are absent."""
    gpu_hours: float
    """Estimated GPU hours if it is to run, or once its data are there; else 0."""
    why: str = ""
    """Reason why the backbone is unfit for the task or why the data are too few or damaged, or a
    note on shared work."""
    core_hours: float = 0.0
    """Estimated hours in which one core makes the pixels for a frozen network."""
    limit: str = ""
    """What the hours of a frozen network follow from, as a plan names it."""
    part: int = 0
    """Number of its job among those that divide the networks of an extraction."""


def plan_cell(cell: Cell) -> PlannedCell:
    """Return the plan of a cell from its data and records; nothing is computed."""
    missing = tuple(
        key for key in cell.task.datasets() if not DATASETS[key].is_there(cell.settings.data)
    )
    why = cell.task.unsupported_reason(cell.backbone)
    if why:
        state: State = "no data" if missing else "unfit"
        return PlannedCell(cell, state, missing, 0.0, "" if missing else why)
    try:
        if not missing and finished(cell) is not None:
            return PlannedCell(cell, "cached", (), 0.0)
    except DataError as error:  # of a damaged data set, which must not stop the other cells
        return PlannedCell(cell, "no data", (), 0.0, str(error))
    too_few = "" if missing else cell.task.too_few_images(cell.settings.data)
    if too_few:
        return PlannedCell(cell, "no data", (), 0.0, too_few)
    units, measured = cell.task.units(), measured_seconds(cell.settings.runs)
    hours, decoding = gpu_hours(units, cell.feature_backbone, measured), 0.0
    if not cell.task.trains_backbone:
        decoding = core_hours(units, cell.backbone, measured, is_cached=_fits_into_memory(cell))
    if missing:
        return PlannedCell(cell, "no data", missing, hours, core_hours=decoding)
    note = f"uses the classifier of {cell.classifier_cell.key}" if cell.classifier_cell else ""
    return PlannedCell(cell, "run", (), hours, note, decoding)


def _fits_into_memory(cell: Cell) -> bool:
    """Return whether the training images are kept decoded, as far as their number tells."""
    num_bytes = DATASETS[cell.task.dataset].counts.get("trainval", 0) * PHOTOGRAPH_BYTES
    with image_memory(cell.settings.image_memory_gb):
        return num_bytes <= image_memory_bytes()


def with_classifiers(rows: Sequence[PlannedCell]) -> list[PlannedCell]:
    """Return the rows, and before rows that use a missing classifier the row that trains it.

    That row is added once, whether or not it was requested. It is added too if the record of the
    training exists but not its weights.
    """
    by_path: dict[Path, PlannedCell] = {}
    for row in rows:
        classifier_cell = row.cell.classifier_cell
        if classifier_cell is not None and row.state == "run" and finished(classifier_cell) is None:
            by_path[classifier_cell.path] = replace(
                plan_cell(classifier_cell), why="other cells use its classifier"
            )
        by_path.setdefault(row.cell.path, row)
    return list(by_path.values())


def with_shared_work_counted_once(
    rows: Sequence[PlannedCell], cores: int, processes: int = 1
) -> list[PlannedCell]:
    """Return the rows, with the hours of a GPU whose images so many cores decode.

    The GPU waits where decoding takes longer than the networks. Images that several rows read are
    decoded once, and a pass takes as long as its longest training. A row costs what it needs beyond
    the rows of its state before it that share work.
    processes: number of jobs that may run at a time, among which networks are divided.
    """
    priced: dict[Path, PlannedCell] = {}
    for group in grouped((_shared_work(row), row) for row in rows).values():
        for number, part in enumerate(_parts(group, cores, processes)):
            priced |= {row.cell.path: replace(row, part=number) for row in _priced(part, cores)}
    return [priced[row.cell.path] for row in rows]


def _parts(
    group: Sequence[PlannedCell], cores: int, processes: int
) -> Sequence[Sequence[PlannedCell]]:
    """Divide the networks of a group until those of a part take no longer than its decoding."""
    networks = list(grouped((row.cell.backbone.sha256, row) for row in group).values())
    hours = sum(max(row.gpu_hours for row in rows) for rows in networks)
    decoding = max(row.core_hours for row in group) / cores
    count = min(processes, len(networks), math.ceil(hours / decoding)) if decoding else 1
    size = math.ceil(len(networks) / max(1, count))
    starts = range(0, len(networks), size)
    return [list(chain.from_iterable(networks[start : start + size])) for start in starts]


def _priced(rows: Sequence[PlannedCell], cores: int) -> list[PlannedCell]:
    """Return rows that share work, each with the hours that it adds, and what limits these."""
    first, networks, decoding, total = rows[0].cell, dict[str, float](), 0.0, 0.0
    priced = []
    for row in rows:
        sha256, why = row.cell.backbone.sha256, row.why
        networks[sha256] = max(networks.get(sha256, 0.0), row.gpu_hours)
        decoding = max(decoding, row.core_hours / cores)
        before, total = total, max(sum(networks.values()), decoding)
        if row.state == "run" and row is not rows[0] and not why:
            if pass_of(row.cell) is None:
                why = f"shares the extraction of {first.backbone.name}"
            elif total > before:
                why = f"continues the pass of {first.key}"
            else:
                why = f"its head is trained by {first.key}"
        priced.append(replace(row, gpu_hours=total - before, why=why))
    if not decoding or rows[0].state != "run":
        return priced
    limit = f"decoding by {cores} core{'s' * (cores > 1)}" if decoding == total else "the GPU"
    return [replace(row, limit=limit) for row in priced]


def _shared_work(row: PlannedCell) -> object:
    """Return a key that is equal for rows that share images or a pass."""
    shared = extraction_of(row.cell) or pass_of(row.cell)
    has_hours = row.state in ("run", "no data")
    return (row.state, shared) if shared and has_hours else row.cell.path


def pass_of(cell: Cell) -> object:
    """Return what identifies the pass over images that a cell reads; None if it shares none."""
    shared_pass = cell.task.shared_pass
    return None if shared_pass is None else (cell.backbone.sha256, cell.seed, shared_pass)


def extraction_of(cell: Cell) -> object:
    """Return what identifies the images whose features are all that a cell reads; None if not all.

    Cells with equal keys share one extraction, whatever their backbones.
    """
    if not cell.task.extracted() or "crop" in cell.task.units():
        return None
    return cell.task.datasets(), cell.backbone.input.size_px


def render_plan(rows: list[PlannedCell]) -> str:
    """Return the plan as a text table."""
    lines = [
        f"{'backbone':<16}{'task':<30}{'protocol':<22}{'engine':<16}{'seed':<6}"
        f"{'state':<9}{'GPU h':>7}  data"
    ]
    for row in rows:
        cell = row.cell
        have = ", ".join(row.missing or cell.task.datasets())
        have = "missing: " * bool(row.missing) + have + f"; {row.why}" * bool(row.why)
        hours = f"{row.gpu_hours:.2f}" if row.state == "run" else "-"
        lines.append(
            f"{cell.backbone.name:<16}{cell.key:<30}{cell.task.protocol:<22}"
            f"{cell.task.engine:<16}{cell.seed:<6}{row.state:<9}{hours:>7}  {have}"
        )
    run, cached, no_data, unfit = _counts(rows)
    alone = [row for row in rows if row.cell.task.distributed_training is None]
    others = sum(row.gpu_hours for row in alone if row.state == "run")
    lines.append(
        f"{run} to run, {cached} finished, {no_data} without data, {unfit} with an unfit backbone; "
        f"about {others:.1f} GPU hours"
    )
    missing = {key for row in rows for key in row.missing}
    how = sorted(f"how to get {key}: {DATASETS[key].how_to_get}" for key in missing)
    notes = [_source_line(rows), *_task_notes(rows), *_kept_crops(rows), *how]
    return "\n".join([*lines, *notes])


def _counts(rows: Sequence[PlannedCell]) -> list[int]:
    """Return the number of rows in each state, in the order of State."""
    return [sum(row.state == state for row in rows) for state in get_args(State)]


def _source_line(rows: Sequence[PlannedCell]) -> str:
    """Return where the hours come from, and what limits those of frozen networks."""
    measured = measured_seconds(rows[0].cell.settings.runs)
    line = f"GPU hours: {measured.source}"
    if not any(kind.startswith("forward") for kind in measured.seconds):
        speed = 1 / ASSUMED["forward"]
        line += f"; frozen networks: {speed:.0f} images of 224 px a second through a ResNet-50, "
        line += "assumed"
    limits = grouped((row.limit, row.gpu_hours) for row in rows if row.limit)
    if limits:
        known = measured.seconds.get("decode")
        rate = f"a core decodes {1 / (known or ASSUMED['decode']):.0f} photographs a second"
        if not known:
            rate += ", assumed"
        told = ", ".join(f"{limit} {sum(hours):.2f} h" for limit, hours in limits.items())
        line += f"\nlimits of frozen networks: {told} ({rate})"
    return line


def _by_class(rows: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """Return the rows that will run, by class of task and options of its trainings.

    On a cluster the cells of one class have options of their own: how many GPUs they train on.
    """
    run = [row for row in rows if row.state == "run"]
    groups = grouped(((type(row.cell.task), row.cell.settings.training), row) for row in run)
    return list(groups.values())


def _training_line(rows: Sequence[PlannedCell]) -> str:
    """Return hours, wall time and memory of long trainings; empty without any."""
    task, settings = rows[0].cell.task, rows[0].cell.settings
    if not task.trains_backbone and task.distributed_training is None:
        return ""
    processes = [row.cell.task.num_processes(settings.training) for row in rows]
    pairs = list(zip(rows, processes, strict=True))
    memory = max(row.cell.task.memory_gb(count) for row, count in pairs)
    needed = f"a GPU needs at least {memory:.1f} GB for a ResNet-50"
    if task.distributed_training is None:
        return f"{task.kind}: {needed}"
    measured = measured_seconds(settings.runs)
    kinds = {kind for row in rows for kind in row.cell.task.units()}
    source = f"({measured.source})" if kinds <= measured.seconds.keys() else task.assumption
    duration = "this machine has no GPU: its processor will take hundreds of times as long"
    if num_gpus() or settings.training.gpus:
        wall_hours, most = sum(row.gpu_hours / count for row, count in pairs), max(processes)
        duration = f"{wall_hours:.1f} hours on {most} GPU{'s' * (most > 1)}"
    hours = sum(row.gpu_hours for row in rows)
    return f"{task.kind}: about {hours:.1f} GPU hours {source}; {duration}; {needed}"


def _task_notes(rows: Sequence[PlannedCell]) -> list[str]:
    """Return the notes on the tasks that will run, by class of task."""
    lines = []
    for group in _by_class(rows):
        task = group[0].cell.task
        lines.append(_training_line(group))
        if 0 < len({row.cell.seed for row in group if row.cell.key == task.mean_of_three}) < 3:
            advice = "the paper's numbers are means of three runs: --seeds 0,1,2"
            lines.append(f"{task.mean_of_three}: {advice}")
        lines += dict.fromkeys(note for row in group for note in row.cell.task.notes())
    return list(filter(None, lines))


def _kept_crops(rows: Sequence[PlannedCell]) -> list[str]:
    """Return how much --cache-crops keeps of the cells that will run, and how much is free."""
    crops = {
        (row.cell.task.dataset, *extracted)
        for row in rows
        if row.state == "run" and row.cell.settings.keep_crops
        for extracted in row.cell.task.extracted()
    }
    if not crops:
        return []
    from transfer.getting.command import free_space

    settings = rows[0].cell.settings
    size = sum(
        3 * transform.crop_px**2 * expected_sizes(key, settings.data).counts.get(split, 0)
        for key, split, transform in crops
    )
    free = free_space(settings.runs)
    told = f"{size / 1e9:.1f} GB below {settings.runs}, where {free / 1e9:.1f} GB are free"
    return [f"--cache-crops keeps up to {told}"]


def protocol_notes(rows: list[PlannedCell]) -> list[str]:
    """Return the deviations from the papers' protocols of cells that can run, each line once."""
    cells = [row.cell for row in rows if row.state in ("run", "cached")]
    notes = grouped((line, cell.key) for cell in cells for line in deviations(cell))
    return [
        f"deviates from {task_of(keys[0]).protocol if len(keys) == 1 else 'the papers'}: {line} "
        f"({count_tasks({*keys})})"
        for line, keys in notes.items()
    ]


HEADER = ("tasks", "cells", "to run", "finished", "no data", "unfit", "GPU hours")
MOST_LINES = 6
"""Deviations from the papers' protocols that are shown, and reasons why cells do not run."""


def render_plan_groups(rows: Sequence[PlannedCell]) -> str:
    """Return a table with the counts and GPU hours of each group of tasks, and what is missing."""
    groups = grouped((row.cell.task.heading, row) for row in rows)
    lines = [_line(name, group) for name, group in groups.items()]
    text = aligned([HEADER, *lines, _line("all", rows)], (0,))
    trainings = filter(None, map(_training_line, _by_class(rows)))
    engines = dict.fromkeys(
        note
        for row in rows
        if row.state == "run" and "engine" in row.cell.task.supported_options
        for note in row.cell.task.notes()
    )
    notes = [*trainings, *engines, *_kept_crops(rows), *_missing_lines(rows)]
    return "\n".join([*text, _source_line(rows), *notes])


def _line(name: str, rows: Sequence[PlannedCell]) -> tuple[str, ...]:
    counts = _counts(rows)
    hours = sum(row.gpu_hours for row in rows if row.state == "run")
    words = [str(count) if count else "-" for count in counts]
    missing = sum(row.gpu_hours for row in rows if row.missing)
    shown = [f"{hours:.2f}"] * bool(counts[0]) + [f"({missing:.2f})"] * bool(missing)
    return (name, str(len(rows)), *words, " ".join(shown) or "-")


def _missing_lines(rows: Sequence[PlannedCell]) -> list[str]:
    """Return the absent data sets, the other reasons why cells do not run, and how to see all."""
    missing = sorted({key for row in rows for key in row.missing})
    kept_from = [row for row in rows if row.why and row.state in ("unfit", "no data")]
    whys = list(dict.fromkeys(f"{row.cell.key}: {row.why}" for row in kept_from))
    lines = [f"missing data, whose hours stand in brackets: {', '.join(missing)}"] * bool(missing)
    lines += first_lines(whys, MOST_LINES, "more")
    if any(row.state == "no data" and not row.missing for row in rows):
        lines.append(
            f"{shlex.join(TRANSFER)} register-subset KEY announces an excerpt of a data set"
        )
    return [*lines, "--plan full prints a line per cell, and how to get each data set"]


def get_data_command(rows: Sequence[PlannedCell]) -> str:
    """Return its size and the command on two lines; empty if no set is missing that can be got."""
    missing = dict.fromkeys(key for row in rows for key in row.missing if DATASETS[key].sources)
    if not missing:
        return ""
    from transfer.getting.command import sources_of, summary
    from transfer.getting.sources import Getting

    data = rows[0].cell.settings.data
    sources = sources_of(tuple(missing))
    getting = Getting(data=data)
    by_hand = [
        source.key
        for source in sources
        if source.access != "download" and not source.is_there(data)
    ]
    note = f"; {', '.join(by_hand)} from your own archives, --from FOLDER" if by_hand else ""
    words = [*TRANSFER, "get-data", *missing, "--data", str(data)]
    return f"missing data: {summary(sources, getting)}{note}:\n{shlex.join(words)}"
