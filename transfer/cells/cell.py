"""One cell of the tables (backbone, task, protocol and seed), evaluated from data to record."""

import json
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from transfer.backbone import Backbone
from transfer.cells.checked_data import (
    checked_folders,
    fingerprint,
    on_checked_data,
    require_still_same,
)
from transfer.cells.shared_classifier import WEIGHTS, Trainer, borrowed, kept, why_missing
from transfer.datasets.catalog import DATASETS, open_split
from transfer.datasets.check import Report
from transfer.datasets.drawn_lists import write_list
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.precision import RequestedPrecision, feature_precision
from transfer.record import (
    RECORDS,
    SNAPSHOTS,
    Record,
    features_in,
    hashed_fields,
    newest_record,
    protocol_hash,
    read_record,
    readable_records,
    record_path,
    store_record,
    stored_fields,
    surroundings,
    write_failure,
)
from transfer.running.folders import Folders
from transfer.running.lock import alone
from transfer.running.processes import Process, this_process
from transfer.tasks import reading_of, task_of
from transfer.tasks.task import Task

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Settings that cells share: folders, training length, options."""

    data: Path
    results: Path
    runs: Path
    """Checkpoints of unfinished cells, and the shared cache."""
    snapshots: bool = False
    """True for backbones that are snapshots of pre-training; they have their own records folder."""
    schedule: str = "paper"
    tolerated: int = 0
    """Missing, surplus or unreadable images, and broken annotations, that a data set may have."""
    training: TrainingOptions = field(default_factory=TrainingOptions)
    """Options of tasks that train the whole network."""
    features_in: RequestedPrecision = "auto"
    """Arithmetic of frozen networks."""

    @property
    def records(self) -> Path:
        """Folder of the records."""
        folder = self.results / RECORDS
        return folder / SNAPSHOTS if self.snapshots else folder


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One evaluation, whose result is one record."""

    key: str
    """Key in TASKS: task id and reading."""
    backbone: Backbone
    seed: int
    place: Place
    with_weights: bool = False
    """True if the cell is finished only when the weights of its classifier exist, too."""

    @cached_property  # a plan reads it many times
    def task(self) -> Task:
        """Protocol at the schedule's length, with the backbone's image size and all options."""
        task = task_of(self.key).at_schedule(self.place.schedule).for_backbone(self.backbone)
        return task.with_options(self.place.training).with_data(self.place.data)

    @property
    def path(self) -> Path:
        """Path of the first record; `record.file_of` gives those of records of other conditions."""
        return record_path(
            self.place.records,
            self.backbone.name,
            reading_of(self.key)[0],
            self.task.protocol,
            self.place.schedule,
            self.seed,
        )

    @property
    def folders(self) -> Folders:
        """Folders of data and cache, and the working folder of this cell."""
        work = self.place.runs / "cells" / self.path.relative_to(self.place.records)
        return Folders(self.place.data, self.place.runs / "cache", work.with_suffix(""))

    @property
    def needed(self) -> "Cell | None":
        """Cell that trains the classifier which this one uses; None if it uses none."""
        key = self.task.needs
        return replace(self, key=key, with_weights=True) if key else None

    @property
    def computing(self) -> Backbone:
        """Backbone with the arithmetic of its frozen features."""
        return replace(self.backbone, precision=feature_precision(self.place.features_in))


def finished(cell: Cell) -> Record | None:
    """Return a record of the same protocol, weights and data, None if there is none.

    Among several, a record of the arithmetic and engine that the cell would use now is preferred.
    """
    found = [record for record in readable_records(cell.path).values() if _fits(cell, record)]
    return max(found, key=lambda record: _matches_current_settings(cell, record), default=None)


def _fits(cell: Cell, record: Record) -> bool:
    """Return whether a record is up to date, in the requested engine and arithmetic, if any."""
    return (
        record.protocol["hash"] == protocol_hash(reading_of(cell.key)[0], cell.task)
        and record.backbone["sha256"] == cell.backbone.sha256
        and cell.task.accepts_engine(record.engine)
        and _same_arithmetic(cell, record)
        and record.details.get("classifier", "") == _classifier_hash(cell)
        and all(
            record.data.get(key, {}).get("fingerprint") == fingerprint(key, cell.place.data)
            for key in cell.task.datasets()
        )
        and not (cell.with_weights and kept(record, cell.folders.work) is None)
    )


def _matches_current_settings(cell: Cell, record: Record) -> tuple[bool, bool]:
    """Return whether the engine, and whether the arithmetic, is what the cell would use now."""
    same_arithmetic = features_in(record) == cell.computing.precision
    return record.engine == cell.task.engine, same_arithmetic


def _same_arithmetic(cell: Cell, record: Record) -> bool:
    """Return whether the arithmetic is acceptable: any, unless one was requested."""
    asked = cell.place.features_in
    return asked in ("auto", features_in(record)) or cell.task.trains_backbone


def _classifier_hash(cell: Cell) -> str:
    """Return the hash of the protocol that trains the cell's classifier; empty if it uses none."""
    needed = cell.needed
    return "" if needed is None else protocol_hash(reading_of(needed.key)[0], needed.task)


def evaluate(cell: Cell) -> Record:
    """Run the cell and write its record; a finished cell is read, not run again.

    BusyError if another process runs the cell. No error leaves a record.
    """
    fingerprint.cache_clear()  # the data may have changed since the plan, or the cell before
    record = finished(cell)
    if record is not None:
        return record
    process = this_process()
    if process.speaks:
        with alone(cell.folders.work):
            file = _compute(cell, process)
    else:
        file = _compute(cell, process)
    if process.num_processes > 1:
        dist.barrier()
    return read_record(file or newest_record(cell.path))


def _compute(cell: Cell, process: Process) -> Path | None:
    """Compute predictions in all processes; the first one writes and returns the record file."""
    start = time.monotonic()
    needed, lender, classifier = cell.needed, None, None
    if needed is not None:
        _require_whole_data(cell)  # before a classifier is trained for hours
        lender = borrowed(cell.key, _trainer(needed))
        classifier = kept(lender, needed.folders.work)

    def prepared_in(folders: Folders) -> tuple[Any, Folders]:
        folders = replace(folders, classifier=classifier)
        return cell.task.prepare(cell.computing, folders), folders

    reports, (prepared, folders) = _on_checked_data(cell, prepared_in, start)
    predictions = cell.task.run(prepared, folders, cell.seed)
    if not process.speaks:
        return None
    record = Record(
        backbone=_backbone_fields(cell.backbone),
        task=reading_of(cell.key)[0],
        protocol=_protocol_fields(cell),
        schedule=cell.place.schedule,
        seed=cell.seed,
        engine=cell.task.engine,
        metrics=cell.task.metrics(predictions),
        details=json.loads(json.dumps(cell.task.details(predictions) | _run_details(cell, lender))),
        data={key: _data_fields(report) for key, report in reports.items()},
        departures=departures(cell) + _classifier_departures(cell, lender),
        wall_s=round(time.monotonic() - start, 1),
        peak_memory_gb=_peak_memory_gb(),
        primary_metric=cell.task.primary_metric,
        heading=cell.task.heading,
        **surroundings(),
    )
    require_still_same(reports, cell.place.data)
    return store_record(cell.path, record)


def _require_whole_data(cell: Cell) -> None:
    """Raise DataError if one of the cell's data sets is incomplete or broken."""
    checked_folders(cell.task.datasets(), cell.folders, cell.place.tolerated)


def _on_checked_data(
    cell: Cell, work: Callable[[Folders], T], since_s: float
) -> tuple[dict[str, Report], T]:
    """Return the reports of the cell's data sets, and the result of `work` on them."""
    keys, tolerated = cell.task.datasets(), cell.place.tolerated
    return on_checked_data(keys, cell.folders, tolerated, work, since_s=since_s)


def _run_details(cell: Cell, lender: Record | None) -> dict[str, object]:
    """Return details: arithmetic of features, lists of drawn splits, classifier that was used."""
    details: dict[str, object] = {}
    if not cell.task.trains_backbone:
        details["features_in"] = cell.computing.precision
    for key in cell.task.datasets():
        if draw := DATASETS[key].draw:
            parts = {part: open_split(key, cell.place.data, part) for part in ("trainval", "test")}
            details[f"list_of_{key}"] = write_list(cell.folders.lists, f"{key}-{draw}", parts)
    if lender is not None:
        details["classifier"] = _classifier_hash(cell)
        details["classifier_weights"] = lender.details[WEIGHTS]
        details["classifier_features_in"] = features_in(lender)
    return details


def _classifier_departures(cell: Cell, lender: Record | None) -> list[str]:
    """Return a departure if the classifier was trained on features in another arithmetic."""
    if lender is None or features_in(lender) == cell.computing.precision:
        return []
    return [f"classifier: trained on features in {features_in(lender)}"]


def _trainer(needed: Cell) -> Trainer:
    """Return the part of a classifier's cell that `shared_classifier` uses."""
    return Trainer(
        key=needed.key,
        path=needed.path,
        work=needed.folders.work,
        finished=lambda: finished(replace(needed, with_weights=False)),
        train=lambda: _compute(needed, this_process()),
        note_failure=lambda error: note_failure(needed, error),
    )


def without_classifier(needed: Cell) -> str:
    """Return why the classifier that the cell trains cannot be used yet; empty if it can."""
    return "" if finished(needed) is not None else why_missing(_trainer(needed))


def prepare(cells: Sequence[Cell]) -> None:
    """Fill the shared cache with what the cells need, such as features; write no record.

    Where a task extracts features together, each image is decoded once for all backbones. A
    classifier that a task uses is not trained here, but by its own cell or when the task runs.
    """
    start = time.monotonic()
    for task in dict.fromkeys(cell.task for cell in cells):
        alike = {cell.backbone.sha256: cell for cell in cells if cell.task == task}
        backbones = [cell.computing for cell in alike.values()]
        _on_checked_data(next(iter(alike.values())), partial(_fill_cache, task, backbones), start)


def _fill_cache(task: Task, backbones: Sequence[Backbone], folders: Folders) -> None:
    """Extract what a task needs of each backbone, in one pass over the images where possible."""
    if not task.extract_together(backbones, folders):
        for backbone in backbones:
            task.prepare(backbone, folders)


def note_failure(cell: Cell, error: BaseException) -> None:
    """Write the reason of a failure to the cell's failure file, which the tables read.

    A full disk is reported on stderr and raises nothing: other cells can go on.
    """
    write_failure(
        cell.path,
        {
            "backbone": cell.backbone.name,
            "task": reading_of(cell.key)[0],
            "protocol": cell.task.protocol,
            "schedule": cell.place.schedule,
            "seed": cell.seed,
            "primary_metric": cell.task.primary_metric,
            "heading": cell.task.heading,
            "reason": f"{type(error).__name__}: {error}".splitlines()[0],
            "traceback": "".join(traceback.format_exception(error)),
        },
    )


def departures(cell: Cell) -> list[str]:
    """Return a sentence per deviation of the cell, its classifier and its data from the paper."""
    found = _differences(task_of(cell.key), cell.task)
    if cell.needed is not None:
        own = _differences(task_of(cell.needed.key), cell.needed.task)
        found += [f"classifier: {line}" for line in own]
    if cell.computing.precision != "float32" and not cell.task.trains_backbone:
        found.append(f"frozen features in {cell.computing.precision}, batch norms folded")
    for key in cell.task.datasets():
        found += DATASETS[key].departures(cell.place.data)
    return found


def _differences(paper: object, used: object) -> list[str]:
    """Return a sentence per field that differs; a nested dataclass, such as a recipe, gets one."""
    found = []
    for spec in hashed_fields(paper):
        before, after = getattr(paper, spec.name), getattr(used, spec.name)
        if is_dataclass(before) and before != after:
            found.append(f"{spec.name}: {', '.join(_differences(before, after))}")
        elif before != after:
            found.append(f"{spec.name} {_brief(after)} instead of {_brief(before)}")
    return found


def _brief(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 4:
        return f"{len(value)} values from {min(value):.3g} to {max(value):.3g}"
    return str(value)


def _protocol_fields(cell: Cell) -> dict[str, Any]:
    task_id = reading_of(cell.key)[0]
    return {
        "name": cell.task.protocol,
        "hash": protocol_hash(task_id, cell.task),
        "paper_hash": protocol_hash(task_id, task_of(cell.key)),
        "fields": json.loads(json.dumps(stored_fields(cell.task))),
    }


def _backbone_fields(backbone: Backbone) -> dict[str, Any]:
    names = ("name", "arch", "stem", "sha256", "file_sha256", "source", "made_by")
    return {name: getattr(backbone, name) for name in names}


def _data_fields(report: Report) -> dict[str, Any]:
    return {
        "fingerprint": report.fingerprint,
        "small": report.small,
        "counts": {split: found for split, (found, _) in report.counts.items()},
        "tolerated": report.num_bad,
    }


def _peak_memory_gb() -> float:
    """Return the peak memory of the GPU if there is one, else of this process, in GB."""
    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
