"""A cell of the tables: a request with its backbone. What of it is finished, and what deviates.

Some cells use a classifier that another cell trains; that cell's record names the weights, which
belong to the same backbone, data, protocol, seed and arithmetic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

from pretrain.running.errors import SuiteError
from transfer.cells.checked_data import fingerprint
from transfer.cells.declaration import with_declared_recipe
from transfer.cells.request import Request, Settings
from transfer.datasets.catalog import DATASETS
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder, with_heads
from transfer.encoders.opening import load
from transfer.encoders.options import Checkpoint
from transfer.frozen.feature_cache import feature_precision
from transfer.record import (
    RECORDS,
    SNAPSHOTS,
    Record,
    cell_records,
    features_in,
    hashed_fields,
    is_record_file,
    protocol_hash,
    read_json,
    record_path,
)
from transfer.tasks import get, reading_of, task_of
from transfer.tasks.task import Task

WEIGHTS = "weights"
"""Key of the name of the stored weights in a record's details."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One evaluation, whose result is one record."""

    request: Request
    backbone: Encoder

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the cell with the weights of its checkpoint; BackboneError if there are none."""
        return cls(request=request, backbone=open_checkpoint(request.checkpoint))

    @classmethod
    def with_backbone(cls, *, backbone: Encoder, **request: Any) -> Self:
        """Return the cell of a backbone in memory; request: fields of `Request`."""
        checkpoint = backbone.checkpoint or Checkpoint(ckpt=Path(backbone.file), name=backbone.name)
        return cls(request=Request(checkpoint=checkpoint, **request), backbone=backbone)

    def asking(self, **request: Any) -> Self:
        """Return the cell with other fields of its request."""
        return replace(self, request=replace(self.request, **request))

    def declared_as(self, backbone: Encoder, *, given: bool) -> Self:
        """Return the cell of the backbone with its declared recipe, which a job then knows as well.

        given: the command line has --trained-with; "" withdraws a recipe then, also a recognized
        one.
        """
        recipe = backbone.declared or ("" if given else None)
        checkpoint = replace(self.request.checkpoint, declared=recipe)
        return replace(self.asking(checkpoint=checkpoint), backbone=backbone)

    @property
    def key(self) -> str:
        """Key in TASKS: task id and reading."""
        return self.request.task

    @property
    def seed(self) -> int:
        """Seed of initial weights and random crops."""
        return self.request.seed

    @property
    def settings(self) -> Settings:
        """Folders and options."""
        return self.request.settings

    @cached_property  # a plan reads it many times
    def task(self) -> Task:
        """Protocol at the schedule's length, with the backbone's image size and all options."""
        named, options = get(self.key), self.settings
        if self.request.variant:
            named = named.ablation(self.request.variant, **self.request.changes)
        task = named.task.at_schedule(options.schedule).for_backbone(self.backbone)
        return task.with_options(options.training).with_data(options.data)

    @property
    def records(self) -> Path:
        """Folder of the records of all backbones, or of all snapshots of pre-training."""
        folder = self.settings.results / RECORDS
        return folder / SNAPSHOTS if self.request.checkpoint.snapshot else folder

    @property
    def path(self) -> Path:
        """Path of the first record; `record.file_for_record` gives those of other conditions."""
        return record_path(
            self.records,
            backbone=self.backbone.name,
            task=reading_of(self.key)[0],
            protocol=self.task.protocol,
            schedule=self.settings.schedule,
            seed=self.seed,
        )

    @property
    def folders(self) -> Folders:
        """Folders of data and cache, and the working folder of this cell."""
        work = self.settings.runs / "cells" / self.path.relative_to(self.records)
        return Folders(
            self.settings.data,
            self.settings.runs / "cache",
            work.with_suffix(""),
            keep_crops=self.settings.keep_crops,
        )

    @property
    def classifier_cell(self) -> "Cell | None":
        """Cell that trains the classifier which this one uses; None if it uses none."""
        key = self.task.classifier_task
        return self.asking(task=key, variant="", changes={}, with_weights=True) if key else None

    @property
    def computing(self) -> Encoder:
        """Backbone with the arithmetic of its frozen features."""
        return replace(self.backbone, precision=feature_precision(self.settings.features_in))


def open_checkpoint(checkpoint: Checkpoint) -> Encoder:
    """Return the backbone of a checkpoint; BackboneError if the file has no such backbone.

    The last files that were read stay in memory, so that the cells of a run read theirs once.
    """
    named = replace(checkpoint, declared=None, random=False)
    try:
        file = checkpoint.ckpt.stat()
    except OSError:
        backbone = _read_checkpoint(named)  # which says what is wrong with the file
    else:
        backbone = _kept_checkpoint(named, file.st_size, file.st_mtime_ns)
    if checkpoint.declared is not None:
        backbone = with_declared_recipe(backbone, checkpoint.declared)
    if not checkpoint.random:
        return backbone
    twin, own = backbone.random_twin(), checkpoint.name or ""
    return replace(twin, name=own) if own.startswith(f"{twin.name}-") else twin


@lru_cache(maxsize=4)
def _kept_checkpoint(checkpoint: Checkpoint, size: int, written_ns: int) -> Encoder:
    return _read_checkpoint(checkpoint)


def _read_checkpoint(checkpoint: Checkpoint) -> Encoder:
    name, branch = checkpoint.name, checkpoint.branch
    backbone = load(checkpoint.ckpt, checkpoint.network, name=name, branch=branch)
    return with_heads(backbone, checkpoint.heads) if checkpoint.heads else backbone


def departures(cell: Cell, classifier_record: Record | None = None) -> list[str]:
    """Return a sentence per deviation of the cell, its classifier and its data from the paper.

    classifier_record: record of the classifier, whose features may have been in another arithmetic.
    """
    found = _differences(task_of(cell.key), cell.task)
    if cell.classifier_cell is not None:
        own = _differences(task_of(cell.classifier_cell.key), cell.classifier_cell.task)
        found += [f"classifier: {line}" for line in own]
    if cell.computing.precision != "float32" and not cell.task.trains_backbone:
        folded = "" if not cell.backbone.is_resnet else ", batch norms folded"
        found.append(f"frozen features in {cell.computing.precision}{folded}")
    for key in cell.task.datasets():
        found += DATASETS[key].departures(cell.settings.data)
    if classifier_record is not None and features_in(classifier_record) != cell.computing.precision:
        found.append(f"classifier: trained on features in {features_in(classifier_record)}")
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


def finished(cell: Cell) -> Record | None:
    """Return a record of the same protocol, weights and data, None if there is none.

    Among several, a record of the arithmetic and engine that the cell would use now is preferred.
    """
    found = [record for record in cell_records(cell.path)[0].values() if _fits(cell, record)]
    return max(
        found,
        key=lambda record: (
            record.engine == cell.task.engine,
            features_in(record) == cell.computing.precision,
        ),
        default=None,
    )


def _fits(cell: Cell, record: Record) -> bool:
    """Return whether a record is up to date, in the requested engine and arithmetic, if any."""
    return (
        record.protocol["hash"] == protocol_hash(reading_of(cell.key)[0], cell.task)
        and record.backbone["sha256"] == cell.backbone.sha256
        and cell.task.accepts_engine(record.engine)
        and (
            cell.settings.features_in in ("auto", features_in(record)) or cell.task.trains_backbone
        )
        and record.details.get("classifier", "") == classifier_hash(cell)
        and all(
            record.data.get(key, {}).get("fingerprint")
            == fingerprint(key, cell.settings.data, cell.folders.cache)
            for key in cell.task.datasets()
        )
        and not (cell.request.with_weights and weights_file(record, cell.folders.work) is None)
    )


def check_records_of_name(cells: Sequence[Cell]) -> None:
    """Raise ValueError if cells of one backbone, which will run, have the name of other weights.

    Records of other weights are in its folder, or a record of another input of its file would be
    replaced.
    """
    cell = cells[0]
    backbone, paths = cell.backbone, [one.path for one in cells]
    folder = cell.records / backbone.name
    for file in sorted(folder.rglob("*.json")):  # a task's name may have a slash
        stored = (read_json(file) or {}).get("backbone")  # that of a failure is only a name
        if not isinstance(stored, dict) or stored.get("sha256") == backbone.sha256:
            continue
        if is_same_file(stored, backbone) and not any(is_record_file(file, one) for one in paths):
            continue
        option = "--results" if backbone.name == "random" else "--name"
        raise ValueError(
            f"{folder} has records of other weights, or of another network or input: {file.name} "
            f"is of {stored.get('arch')}, hash {str(stored.get('sha256'))[:12]}, and this "
            f"checkpoint is {backbone.arch}, hash {backbone.sha256[:12]}. They are not replaced: "
            f"give another {option}, or move that folder out of {cell.settings.results}"
        )


def is_same_file(stored: Mapping[str, Any], backbone: Encoder) -> bool:
    """Return whether stored fields of a backbone are of the same file, maybe with another input."""
    return backbone.file_sha256 != "" and stored.get("file_sha256") == backbone.file_sha256


def weights_file(record: Record | None, work: Path) -> Path | None:
    """Return the file of the weights that a record names; None if it is absent or holds others."""
    from transfer.frozen.classifier import classifier_file, load_classifier

    name = record.details.get(WEIGHTS) if record is not None else None
    if name is None:
        return None
    file = classifier_file(work, name)
    return file if load_classifier(file) is not None else None


def classifier_hash(cell: Cell) -> str:
    """Return the hash of the protocol that trains the cell's classifier; empty if it uses none."""
    classifier_cell = cell.classifier_cell
    if classifier_cell is None:
        return ""
    return protocol_hash(reading_of(classifier_cell.key)[0], classifier_cell.task)


class ClassifierError(SuiteError, RuntimeError):
    """Error for a shared classifier that cannot be trained; the cell that uses it did not fail."""

    def __init__(self, key: str, reason: object) -> None:
        super().__init__(f"classifier {key} failed: {reason}")
        self.reason = str(reason)
