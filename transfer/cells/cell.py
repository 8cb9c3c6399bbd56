"""A cell of the tables: request, backbone, records and deviations.

Some cells use a classifier that another cell trains. That cell's record names the weights, which
belong to the same backbone, data, protocol, seed and precision.
"""

from collections.abc import Sequence
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
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder, with_heads
from transfer.encoders.opening import open_file
from transfer.encoders.options import Checkpoint
from transfer.frozen.classifier import classifier_file
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
"""Key of the stored weights' name in a record's details."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One evaluation; its result is one record."""

    request: Request
    backbone: Encoder
    shared_s: float = 0.0
    """Seconds that its process has worked for several cells before, this cell's share."""

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the cell with the weights of its checkpoint.

        BackboneError if the checkpoint has no such backbone, or its file has changed since the
        plan.
        """
        backbone = open_checkpoint(request.checkpoint)
        if request.file_sha256 not in ("", backbone.file_sha256):
            raise BackboneError(
                f"{request.checkpoint.ckpt}: the file has changed since the plan (its SHA-256 was "
                f"{request.file_sha256[:12]} and is {backbone.file_sha256[:12]}). To evaluate it "
                "as it is now, run the command again. If a training overwrites it, evaluate a copy"
            )
        return cls(request=replace(request, file_sha256=""), backbone=backbone)

    @classmethod
    def with_backbone(cls, *, backbone: Encoder, **request: Any) -> Self:
        """Return the cell of a backbone in memory; request: fields of `Request`."""
        checkpoint = backbone.checkpoint or Checkpoint(ckpt=Path(backbone.file), name=backbone.name)
        return cls(request=Request(checkpoint=checkpoint, **request), backbone=backbone)

    @property
    def planned_request(self) -> Request:
        """Request for a job, which fails if the checkpoint file changes before it starts."""
        return replace(self.request, file_sha256=self.backbone.file_sha256)

    def with_request(self, **request: Any) -> Self:
        """Return the cell with some fields of its request replaced."""
        return replace(self, request=replace(self.request, **request), shared_s=0.0)

    def declared_as(self, backbone: Encoder, *, is_explicit: bool) -> Self:
        """Return the cell with a backbone and its declared recipe.

        The request gets the recipe too, so that a job knows it. is_explicit: the command line has
        --trained-with. An empty recipe is then stored as "", which removes an earlier or a
        recognized recipe.
        """
        recipe = backbone.declared or ("" if is_explicit else None)
        checkpoint = replace(self.request.checkpoint, declared=recipe)
        return replace(self.with_request(checkpoint=checkpoint), backbone=backbone)

    @property
    def key(self) -> str:
        """Key in TASKS: task id and protocol variant."""
        return self.request.task

    @property
    def seed(self) -> int:
        """Seed of initial weights and random crops."""
        return self.request.seed

    @property
    def settings(self) -> Settings:
        """Folders and options."""
        return self.request.settings

    @cached_property  # a plan uses it many times
    def task(self) -> Task:
        """Protocol with schedule, image size of the backbone and all options."""
        named, settings = get(self.key), self.settings
        if self.request.variant:
            named = named.ablation(self.request.variant, **self.request.changes)
        task = named.task.at_schedule(settings.schedule).for_backbone(self.backbone)
        return task.with_options(settings.training).with_data(settings.data)

    @property
    def records(self) -> Path:
        """Folder of all records, or of all records of pre-training snapshots."""
        folder = self.settings.results / RECORDS
        return folder / SNAPSHOTS if self.request.checkpoint.snapshot else folder

    @property
    def path(self) -> Path:
        """Path of the first record.

        `record.file_for_record` returns the paths of records with other conditions.
        """
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
        """Folders of data and cache, and this cell's working folder."""
        work_path = self.settings.runs / "cells" / self.path.relative_to(self.records)
        return Folders(
            self.settings.data,
            self.settings.runs / "cache",
            work_path.with_suffix(""),
            keep_crops=self.settings.keep_crops,
        )

    @property
    def classifier_cell(self) -> "Cell | None":
        """Cell that trains this cell's classifier; None if it uses none."""
        if not (key := self.task.classifier_task):
            return None
        return self.with_request(task=key, variant="", changes={}, with_weights=True)

    @property
    def feature_backbone(self) -> Encoder:
        """Backbone with the precision of its frozen features."""
        return replace(self.backbone, precision=feature_precision(self.settings.features_in))


def open_checkpoint(checkpoint: Checkpoint) -> Encoder:
    """Return the backbone of a checkpoint.

    The most recent files stay in memory, so that the cells of a run read theirs once. BackboneError
    if the file has no such backbone.
    """
    plain_checkpoint = replace(checkpoint, declared=None, random=False)
    written_ns = checkpoint.ckpt.stat().st_mtime_ns if checkpoint.ckpt.exists() else 0
    backbone = _read_checkpoint(plain_checkpoint, written_ns)
    if checkpoint.declared is not None:
        backbone = with_declared_recipe(backbone, checkpoint.declared)
    if not checkpoint.random:
        return backbone
    random_encoder, name = backbone.with_random_weights(), checkpoint.name or ""
    if name.startswith(f"{random_encoder.name}-"):
        return replace(random_encoder, name=name)
    return random_encoder


@lru_cache(maxsize=4)
def _read_checkpoint(checkpoint: Checkpoint, written_ns: int) -> Encoder:
    name, branch = checkpoint.name, checkpoint.branch
    backbone, _ = open_file(checkpoint.ckpt, checkpoint.network, name=name, branch=branch)
    return with_heads(backbone, checkpoint.heads) if checkpoint.heads else backbone


def deviations(cell: Cell, classifier_record: Record | None = None) -> list[str]:
    """Return the deviations of cell, classifier and data from the paper.

    Each deviation is a sentence. classifier_record: the record of the classifier, which may have
    been trained on features in another precision.
    """
    sentences = _differences(task_of(cell.key), cell.task)
    if cell.classifier_cell is not None:
        classifier_differences = _differences(
            task_of(cell.classifier_cell.key), cell.classifier_cell.task
        )
        sentences += [f"classifier: {sentence}" for sentence in classifier_differences]
    if cell.feature_backbone.precision != "float32" and not cell.task.trains_backbone:
        folded = ", batch norms folded" if cell.backbone.is_resnet else ""
        sentences.append(f"frozen features in {cell.feature_backbone.precision}{folded}")
    for key in cell.task.datasets():
        sentences += DATASETS[key].departures(cell.settings.data)
    if (
        classifier_record is not None
        and features_in(classifier_record) != cell.feature_backbone.precision
    ):
        sentences.append(f"classifier: trained on features in {features_in(classifier_record)}")
    return sentences


def _differences(paper: object, used: object) -> list[str]:
    """Return a sentence per field that differs.

    A nested dataclass, such as a recipe, gets one sentence.
    """
    sentences = []
    for spec in hashed_fields(paper):
        paper_value, used_value = getattr(paper, spec.name), getattr(used, spec.name)
        if is_dataclass(paper_value) and paper_value != used_value:
            sentences.append(f"{spec.name}: {', '.join(_differences(paper_value, used_value))}")
        elif paper_value != used_value:
            sentences.append(f"{spec.name} {_brief(used_value)} instead of {_brief(paper_value)}")
    return sentences


def _brief(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 4:
        return f"{len(value)} values from {min(value):.3g} to {max(value):.3g}"
    return str(value)


def finished(cell: Cell, *, compares_data: bool = True) -> Record | None:
    """Return an up-to-date record of the cell, or None.

    Its protocol, weights and data equal the cell's. Among several records, one with the precision
    and engine of a new run is preferred, then the newest.

    compares_data: read the data, to compare its fingerprint with the record's.
    """
    stored = cell_records(cell.path)[0].values()
    records = [r for r in stored if _is_up_to_date(cell, r, compares_data=compares_data)]
    return max(
        records,
        key=lambda record: (
            record.engine == cell.task.engine,
            features_in(record) == cell.feature_backbone.precision,
            record.finished,
        ),
        default=None,
    )


def _is_up_to_date(cell: Cell, record: Record, *, compares_data: bool) -> bool:
    """Return whether a record is up to date.

    It must also have the engine and precision that the cell requests, if any.
    """
    settings, options = cell.settings, cell.task.supported_options
    return (
        record.protocol["hash"] == protocol_hash(reading_of(cell.key)[0], cell.task)
        and record.backbone["sha256"] == cell.backbone.sha256
        and ("engine" not in options or settings.training.engine in ("auto", record.engine))
        and ("features_in" not in options or settings.features_in in ("auto", features_in(record)))
        and record.details.get("classifier", "") == classifier_hash(cell)
        and all(
            record.data.get(key, {}).get("fingerprint")
            == fingerprint(key, settings.data, cell.folders.cache)
            for key in (cell.task.datasets() if compares_data else ())
        )
        and not (cell.request.with_weights and weights_file(record, cell.folders.work) is None)
    )


def check_records_of_name(cells: Sequence[Cell]) -> None:
    """Raise ValueError if the backbone's name has records of other weights.

    cells: cells of one backbone that will run. The error is also raised if a record of the same
    file with another input would be replaced.
    """
    cell = cells[0]
    backbone, paths = cell.backbone, [c.path for c in cells]
    folder = cell.records / backbone.name
    for file in sorted(folder.rglob("*.json")):  # a task's name may have a slash
        stored = (read_json(file) or {}).get("backbone")  # a state file has only the name
        if not isinstance(stored, dict) or stored.get("sha256") == backbone.sha256:
            continue
        is_same_file = stored.get("file_sha256") == backbone.file_sha256 != ""  # at another input
        if is_same_file and not any(is_record_file(file, path) for path in paths):
            continue
        option = "--results" if backbone.name == "random" else "--name"
        raise ValueError(
            f"{folder} has records of other weights, or of another network or input: {file.name} "
            f"is of {stored.get('arch')}, hash {str(stored.get('sha256'))[:12]}, and this "
            f"checkpoint is {backbone.arch}, hash {backbone.sha256[:12]}. They are not replaced: "
            f"pass another {option}, or move that folder out of {cell.settings.results}"
        )


def weights_file(record: Record | None, work_folder: Path) -> Path | None:
    """Return the file of the weights that a record names; None if it is missing."""
    name = record.details.get(WEIGHTS) if record is not None else None
    if name is None:
        return None
    file = classifier_file(work_folder, name)
    return file if file.exists() else None


def classifier_hash(cell: Cell) -> str:
    """Return the protocol hash of the cell's classifier; empty without one."""
    classifier_cell = cell.classifier_cell
    if classifier_cell is None:
        return ""
    return protocol_hash(reading_of(classifier_cell.key)[0], classifier_cell.task)


class ClassifierError(SuiteError, RuntimeError):
    """A shared classifier failed to train, not the cell that uses it."""


def classifier_error(classifier_cell: Cell, reason: object) -> ClassifierError:
    """Return the error of a cell that uses a classifier whose training failed."""
    return ClassifierError(f"classifier {classifier_cell.key} failed: {reason}")
