"""The request for one cell of the tables: a backbone, a task and a seed, with shared settings."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from transfer.backbone import Backbone
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.precision import RequestedPrecision, feature_precision
from transfer.record import RECORDS, SNAPSHOTS, record_path
from transfer.running.folders import Folders
from transfer.tasks import reading_of, task_of
from transfer.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class CellSettings:
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
    image_memory_gb: float | None = None
    """Memory of this process for decoded training images; None: its share of the free memory."""
    trust_topology: bool = False
    """Foreign networks are taken as assumed, also where their running statistics contradict."""

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
    settings: CellSettings
    ablation: Task | None = None
    """Task in place of the key's own, with other numbers and a protocol name of its own."""
    with_weights: bool = False
    """True if the cell is finished only when the weights of its classifier exist, too."""

    @cached_property  # a plan reads it many times
    def task(self) -> Task:
        """Protocol at the schedule's length, with the backbone's image size and all options."""
        task = self.ablation or task_of(self.key)
        task = task.at_schedule(self.settings.schedule).for_backbone(self.backbone)
        return task.with_options(self.settings.training).with_data(self.settings.data)

    @property
    def path(self) -> Path:
        """Path of the first record; `record.file_of` gives those of records of other conditions."""
        return record_path(
            self.settings.records,
            self.backbone.name,
            reading_of(self.key)[0],
            self.task.protocol,
            self.settings.schedule,
            self.seed,
        )

    @property
    def folders(self) -> Folders:
        """Folders of data and cache, and the working folder of this cell."""
        work = self.settings.runs / "cells" / self.path.relative_to(self.settings.records)
        return Folders(self.settings.data, self.settings.runs / "cache", work.with_suffix(""))

    @property
    def needed(self) -> "Cell | None":
        """Cell that trains the classifier which this one uses; None if it uses none."""
        key = self.task.needs
        return replace(self, key=key, with_weights=True) if key else None

    @property
    def computing(self) -> Backbone:
        """Backbone with the arithmetic of its frozen features."""
        return replace(self.backbone, precision=feature_precision(self.settings.features_in))
