"""The plan of a run: state, cost and missing data of cells."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from benchmarks.results.final_screen import first_lines
from benchmarks.words import TRANSFER, count_tasks, grouped, plural
from pretrain.running.console import aligned
from pretrain.running.host_memory import image_memory, image_memory_bytes
from pretrain.running.processes import num_gpus
from transfer.cells.cell import Cell, deviations, finished
from transfer.datasets.catalog import DATASETS, instructions
from transfer.datasets.expected import DataError
from transfer.hours import ASSUMED, Measured, core_hours, gpu_hours
from transfer.tasks import task_of

IMAGE_BYTES = 3 * 500 * 375
"""Size of a decoded image of ImageNet."""
NO_GPU = "this machine has no GPU; a ResNet-50 computes about 7 images/s per core (assumed)"
"""What limits frozen networks on a CPU (docs/explanation/speed.md)."""
State = Literal["run", "cached", "missing data", "unsupported"]


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its state and estimated cost."""

    cell: Cell
    state: State
    missing: tuple[str, ...]
    """Keys of missing datasets."""
    gpu_hours: float
    """Estimated GPU hours, or 0 if the cell is finished or unsupported."""
    reason: str = ""
    """Why the backbone is not supported, why the data is too small or damaged, or a note on shared
    work."""
    core_hours: float = 0.0
    """Estimated hours to decode images for a frozen network on one core."""
    limit: str = ""
    """What limits the speed of a frozen network: decoding, the GPU, or NO_GPU."""
    job_index: int = 0
    """Index of its job, if several jobs share one extraction."""
    measured: Measured = field(default_factory=Measured)
    """Seconds per image, from which the hours are estimated."""


def plan_cell(cell: Cell, measured: Measured) -> PlannedCell:
    """Return the plan of a cell, based on its data and records."""
    planned = partial(PlannedCell, cell, measured=measured)
    missing = tuple(
        key for key in cell.task.datasets() if not DATASETS[key].exists_in(cell.settings.data)
    )
    reason = cell.task.unsupported_reason(cell.backbone)
    if reason:
        state: State = "missing data" if missing else "unsupported"
        return planned(state, missing, 0.0, "" if missing else reason)
    try:
        if not missing and finished(cell) is not None:
            return planned("cached", (), 0.0)
    except DataError as error:  # a damaged dataset must not stop the other cells
        return planned("missing data", (), 0.0, str(error))
    too_few = "" if missing else cell.task.too_few_images(cell.settings.data)
    if too_few:
        return planned("missing data", (), 0.0, too_few)
    hours = gpu_hours(cell.task.units(), cell.feature_backbone, measured)
    decoding = decoding_hours(cell, measured)
    if missing:
        return planned("missing data", missing, hours, core_hours=decoding)
    note = f"uses the classifier of {cell.classifier_cell.key}" if cell.classifier_cell else ""
    return planned("run", (), hours, note, decoding)


def decoding_hours(cell: Cell, measured: Measured, jobs: int = 1) -> float:
    """Return the estimated hours to decode a frozen network's images on one core.

    jobs: number of parallel jobs, which share the memory for decoded images.
    """
    if cell.task.trains_backbone:
        return 0.0
    units, is_cached = cell.task.units(), False
    if "crop" in units:  # each epoch reads the images again
        num_bytes = DATASETS[cell.task.dataset].counts.get("trainval", 0) * IMAGE_BYTES
        with image_memory(cell.settings.image_memory_gb):
            is_cached = num_bytes <= image_memory_bytes(jobs)
    return core_hours(units, cell.backbone, measured, is_cached=is_cached)


def with_classifiers(rows: Sequence[PlannedCell]) -> list[PlannedCell]:
    """Insert rows that train missing classifiers before the rows that use them.

    Each such row is inserted once, even if it was not requested, or if its record exists but its
    weights do not.
    """
    by_path: dict[Path, PlannedCell] = {}
    for row in rows:
        classifier_cell = row.cell.classifier_cell
        if classifier_cell is not None and row.state == "run" and finished(classifier_cell) is None:
            by_path[classifier_cell.path] = replace(
                plan_cell(classifier_cell, row.measured), reason="other tasks use its classifier"
            )
        by_path.setdefault(row.cell.path, row)
    return list(by_path.values())


def with_jobs_and_hours(
    rows: Sequence[PlannedCell], cores: int, processes: int
) -> list[PlannedCell]:
    """Return the rows with their jobs, and GPU hours in which shared work counts once.

    If decoding on these cores takes longer than the networks, the GPU waits. Images that several
    rows read are decoded once, and a pass takes as long as its longest training. A row has only the
    hours that it adds to earlier rows in the same state.

    processes: maximum number of parallel jobs, among which networks are divided.
    """
    priced: dict[Path, PlannedCell] = {}
    for group in grouped((_shared_images(row), row) for row in rows).values():
        for index, job in enumerate(_split_into_jobs(group, cores, processes)):
            for row in _with_added_hours(job, cores):
                priced[row.cell.path] = replace(row, job_index=index)
    return [priced[row.cell.path] for row in rows]


def _split_into_jobs(
    group: Sequence[PlannedCell], cores: int, processes: int
) -> Sequence[Sequence[PlannedCell]]:
    """Split the networks of a group into jobs limited by decoding."""
    networks = list(grouped((row.cell.backbone.sha256, row) for row in group).values())
    hours = sum(max(row.gpu_hours for row in rows) for rows in networks)
    decoding = max(row.core_hours for row in group) / cores
    count = min(processes, len(networks), math.ceil(hours / decoding)) if decoding else 1
    size = math.ceil(len(networks) / max(1, count))
    starts = range(0, len(networks), size)
    return [list(chain.from_iterable(networks[start : start + size])) for start in starts]


def _with_added_hours(rows: Sequence[PlannedCell], cores: int) -> list[PlannedCell]:
    """Return rows that share work with the hours that each adds."""
    first, networks, decoding, total = rows[0].cell, dict[str, float](), 0.0, 0.0
    priced = []
    for row in rows:
        sha256, reason = row.cell.backbone.sha256, row.reason
        networks[sha256] = max(networks.get(sha256, 0.0), row.gpu_hours)
        decoding = max(decoding, row.core_hours / cores)
        previous, total = total, max(sum(networks.values()), decoding)
        if row.state == "run" and row is not rows[0] and not reason:
            if pass_of(row.cell) is None:
                reason = f"shares feature extraction with {first.backbone.name}"
            elif sha256 != first.backbone.sha256:
                reason = f"shares random crops with {first.backbone.name}"
            elif total > previous:
                reason = f"extends the training pass of {first.key}"
            else:
                reason = f"trained together with {first.key}"
        priced.append(replace(row, gpu_hours=total - previous, reason=reason))
    if not decoding or rows[0].state != "run":
        return priced
    limit = f"decoding on {plural(cores, 'CPU core')}" if decoding == total else "the GPU"
    return [replace(row, limit=limit) for row in priced]


def _shared_images(row: PlannedCell) -> object:
    """Return a common key for rows that share images or a pass."""
    shared = extraction_of(row.cell) or pass_of(row.cell)
    has_hours = row.state in ("run", "missing data")
    return (row.state, shared) if shared and has_hours else row.cell.path


def pass_of(cell: Cell) -> object:
    """Return the key of a cell's pass over random crops, or None.

    Cells with equal keys share the pass, even if their backbones differ.
    """
    shared_pass = cell.task.shared_pass
    return None if shared_pass is None else (cell.seed, shared_pass)


def extraction_of(cell: Cell) -> object:
    """Return the key of a cell's feature extraction, or None.

    It is None if the cell uses other inputs than features of center crops. Cells with equal keys
    share one extraction, even if their backbones differ.
    """
    if not cell.task.extracted() or "crop" in cell.task.units():
        return None
    return cell.task.datasets(), cell.backbone.input.size_px


def render_plan(rows: list[PlannedCell]) -> str:
    """Return the plan as a text table with one line per cell."""
    table = [("backbone", "task", "protocol", "engine", "seed", "state", "GPU h", "data")]
    for row in rows:
        cell = row.cell
        data = ", ".join(row.missing or cell.task.datasets())
        if row.missing:
            data = f"missing: {data}"
        if row.reason:
            data += f"; {row.reason}"
        row_hours = f"{row.gpu_hours:.2f}" if row.state == "run" else "-"
        names = (cell.backbone.name, cell.key, cell.task.protocol, cell.task.engine, str(cell.seed))
        table.append((*names, row.state, row_hours, data))
    lines = aligned(table, right=(6,))
    run, cached, missing_data, unsupported = _counts(rows)
    hours = sum(row.gpu_hours for row in rows if row.state == "run")
    lines.append(
        f"{run} to run, {cached} finished, {missing_data} with missing data, {unsupported} not "
        f"supported by the backbone; about {hours:.1f} GPU hours"
    )
    missing = {key for row in rows for key in row.missing}
    advice = sorted(f"how to get {key}: {instructions(key)}" for key in missing)
    notes = [_source_line(rows), *_task_notes(rows), *advice]
    return "\n".join([*lines, *notes])


def _counts(rows: Sequence[PlannedCell]) -> list[int]:
    """Return the number of rows in each state of `State`."""
    return [sum(row.state == state for row in rows) for state in get_args(State)]


def _source_line(rows: Sequence[PlannedCell]) -> str:
    """Return a note on the source of hours and on speed limits."""
    measured = rows[0].measured
    line = f"GPU hours: {measured.source}"
    if not any(kind.startswith("forward") for kind in measured.seconds):
        throughput = 1 / ASSUMED["forward"]
        line += f"; frozen ResNet-50 at 224 px: {throughput:.0f} images/s (assumed)"
    limits = grouped((row.limit, row.gpu_hours) for row in rows if row.limit)
    if NO_GPU in limits:
        line += f"\nfrozen networks: {NO_GPU}"
    elif limits:
        decode_s = measured.seconds.get("decode")
        throughput = 1 / (decode_s or ASSUMED["decode"])
        decoding = f"one core decodes {throughput:.0f} images/s"
        if not decode_s:
            decoding += ", assumed"
        text = ", ".join(f"{limit} {sum(hours):.2f} h" for limit, hours in limits.items())
        line += f"\nfrozen networks are limited by {text} ({decoding})"
    return line


def _by_class(rows: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """Group the rows to run by task class and training options.

    On a cluster, cells of one class can have different options: the number of GPUs differs.
    """
    to_run = [row for row in rows if row.state == "run"]
    groups = grouped(((type(row.cell.task), row.cell.settings.training), row) for row in to_run)
    return list(groups.values())


def _training_line(rows: Sequence[PlannedCell]) -> str:
    """Return the hours, wall time and memory of long trainings, or ""."""
    task, training = rows[0].cell.task, rows[0].cell.settings.training
    if not task.trains_backbone and task.distributed_training is None:
        return ""
    processes = [row.cell.task.num_processes(training) for row in rows]
    rows_processes = list(zip(rows, processes, strict=True))
    memory = max(row.cell.task.memory_gb(count) for row, count in rows_processes)
    memory_note = f"needs a GPU with at least {memory:.1f} GB for a ResNet-50"
    if task.distributed_training is None:
        return f"{task.kind}: {memory_note}"
    measured = rows[0].measured
    kinds = {kind for row in rows for kind in row.cell.task.units()}
    source = f"({measured.source})" if kinds <= measured.seconds.keys() else task.assumption
    duration = "this machine has no GPU, and a CPU takes hundreds of times longer"
    if num_gpus() or training.gpus:
        wall_hours = sum(row.gpu_hours / count for row, count in rows_processes)
        duration = f"{wall_hours:.1f} hours on {plural(max(processes), 'GPU')}"
    hours = sum(row.gpu_hours for row in rows)
    return f"{task.kind}: about {hours:.1f} GPU hours {source}; {duration}; {memory_note}"


def _task_notes(rows: Sequence[PlannedCell]) -> list[str]:
    """Return notes on the tasks that will run, by task class."""
    lines = []
    for group in _by_class(rows):
        task = group[0].cell.task
        lines.append(_training_line(group))
        if 0 < len({row.cell.seed for row in group if row.cell.key == task.mean_of_three}) < 3:
            advice = "the paper reports means over three runs; to compare, pass --seeds 0,1,2"
            lines.append(f"{task.mean_of_three}: {advice}")
        lines += dict.fromkeys(note for row in group for note in row.cell.task.notes())
    return list(filter(None, lines))


def protocol_notes(rows: list[PlannedCell]) -> list[str]:
    """Return each deviation of runnable cells from the papers' protocols once."""
    cells = [row.cell for row in rows if row.state in ("run", "cached")]
    notes = grouped((line, cell.key) for cell in cells for line in deviations(cell))
    return [
        f"deviates from {task_of(keys[0]).protocol if len(keys) == 1 else 'the papers'}: {line} "
        f"({count_tasks({*keys})})"
        for line, keys in notes.items()
    ]


HEADER = ("tasks", "evaluations", "to run", "finished", "missing data", "unsupported", "GPU hours")
MAX_LINES = 6
"""Maximum number of deviations, and of reasons, in the short plan."""


def render_plan_groups(rows: Sequence[PlannedCell]) -> str:
    """Return a table of counts and GPU hours by task group."""
    groups = grouped((row.cell.task.heading, row) for row in rows)
    lines = [_group_row(name, group) for name, group in groups.items()]
    table = aligned([HEADER, *lines, _group_row("all", rows)], right=range(1, len(HEADER)))
    trainings = filter(None, map(_training_line, _by_class(rows)))
    engines = dict.fromkeys(
        note
        for row in rows
        if row.state == "run" and "engine" in row.cell.task.supported_options
        for note in row.cell.task.notes()
    )
    notes = [*trainings, *engines, *_missing_lines(rows)]
    return "\n".join([*table, _source_line(rows), *notes])


def _group_row(name: str, rows: Sequence[PlannedCell]) -> tuple[str, ...]:
    counts = _counts(rows)
    columns = [str(count) if count else "-" for count in counts]
    hours = []
    if counts[0]:
        hours.append(f"{sum(row.gpu_hours for row in rows if row.state == 'run'):.2f}")
    if missing := sum(row.gpu_hours for row in rows if row.missing):
        hours.append(f"({missing:.2f})")
    return (name, str(len(rows)), *columns, " ".join(hours) or "-")


def _missing_lines(rows: Sequence[PlannedCell]) -> list[str]:
    """Return notes on missing datasets and other reasons for skipped cells."""
    missing = sorted({key for row in rows for key in row.missing})
    skipped = [row for row in rows if row.reason and row.state in ("unsupported", "missing data")]
    reasons = list(dict.fromkeys(f"{row.cell.key}: {row.reason}" for row in skipped))
    lines = [f"missing data (GPU hours in brackets): {', '.join(missing)}"] if missing else []
    lines += first_lines(reasons, MAX_LINES, "more")
    if any(row.state == "missing data" and not row.missing for row in rows):
        lines.append(f"to use a subset of a dataset: {shlex.join(TRANSFER)} register-subset KEY")
    return [*lines, "to list each evaluation and how to get its data: --plan full"]


def get_data_command(rows: Sequence[PlannedCell]) -> str:
    """Return the size of missing datasets and the command for them."""
    missing = dict.fromkeys(key for row in rows for key in row.missing if DATASETS[key].sources)
    if not missing:
        return ""
    from transfer.getting.command import sources_of, summary
    from transfer.getting.sources import Getting

    data = rows[0].cell.settings.data
    sources = sources_of(tuple(missing))
    args = [*TRANSFER, "get-data", *missing, "--data", str(data)]
    return f"missing data: {summary(sources, Getting(data=data))}. To get it:\n{shlex.join(args)}"
