"""The command line that evaluates one checkpoint on one task."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from pretrain.running.command_line import check_ranges
from pretrain.running.console import format_duration
from pretrain.running.processes import this_process
from transfer.cells.declaration import (
    check_declared_recipe,
    settle_declaration,
    with_declared_recipe,
)
from transfer.cells.request import (
    Cell,
    CellSettings,
    check_records_of_name,
    departures,
    finished,
)
from transfer.datasets.expected import DataError
from transfer.datasets.folders import check_row_name, check_writable, data_folder
from transfer.detection.engines import engine_for
from transfer.encoders.encoder import BackboneError, default_name, require_file, with_heads
from transfer.encoders.opening import load
from transfer.encoders.options import AnyEncoder, EncoderOptions
from transfer.finetuning.options import RANGES, TrainingOptions, length_fraction
from transfer.frozen.feature_cache import RequestedPrecision
from transfer.record import Record, file_for_record
from transfer.tasks import task_of
from transfer.tasks.task import require_heeded


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate one checkpoint on one task."""

    task: Annotated[str, tyro.conf.Positional]
    """Task of `python -m transfer --list`."""
    ckpt: Path
    """Backbone file, or a checkpoint of another project."""
    name: str | None = None
    """Name of the row in the tables; default: the name of the file, or of its folder for a file
    such as backbone.pt or checkpoint.pth."""
    declared: Annotated[str | None, tyro.conf.arg(name="as")] = None
    """Recipe of a file that does not say how it was made, such as moco/in1k-r50-v2; '' withdraws
    that of an earlier run."""
    branch: str = ""
    """Part of the prefix of the ResNet to take where a file holds several, such as student."""
    network: AnyEncoder = field(default_factory=EncoderOptions)
    """Options for a checkpoint of another network."""
    data: Path = field(default_factory=data_folder)
    """Folder of all data sets; $DATASETS or ./datasets."""
    results: Path = Path("results")
    """Folder of the results."""
    runs: Path = Path("runs")
    """Folder of caches and unfinished work."""
    schedule: str = "paper"
    """paper, short (a tenth of its length), smoke (a few steps), or a share such as 0.02."""
    seed: int = 0
    """Seed of initial weights and random crops."""
    tolerate: int = 0
    """Missing, surplus, repeated or broken images and annotations that a data set may have."""
    random: bool = False
    """Evaluate a random initialization of the checkpoint's network in its settings."""
    heads: tuple[int, ...] = ()
    """Heads of a LooC++ or MoCo++ file, such as 0 2, with concatenated features; default all."""
    features_in: RequestedPrecision = "auto"
    """Arithmetic of frozen networks; auto: bfloat16 on a GPU, float32 elsewhere."""
    image_memory_gb: float | None = None
    """Memory in GB per process for the decoded training images of a linear probe or of few labels,
    which are decoded for every pass if they need more; default a quarter of the free memory,
    divided by the processes that run side by side."""
    keep_crops: bool = False
    """Keep the images of frozen features as pixels below --runs, for later checkpoints: 0.15 MB an
    image of 224 px, 193 GB for ImageNet, and no decoding the next time."""
    training: Annotated[TrainingOptions, tyro.conf.arg(name="")] = field(
        default_factory=TrainingOptions
    )
    """Options of tasks that train the whole network."""
    with_weights: bool = False
    """Train again if the record exists, but not the classifier's weights, which other tasks use."""
    dry_run: bool = False
    """Print what would be done, and do nothing."""

    def __call__(self) -> int:
        """Evaluate the checkpoint and print the result; return the exit status."""
        from transfer.cells.many_gpus import evaluate_on_gpus

        tasks = [task_of(self.task)]
        require_heeded(
            self.training, tasks, self.features_in, self.keep_crops, self.image_memory_gb
        )
        check_writable(self.results, "--results")
        check_writable(self.runs, "--runs")
        cell = self.cell()
        if this_process().is_main:
            print(f"backbone  {cell.backbone.source}", file=sys.stderr)
        if this_process().num_processes > 1 and cell.task.distributed_training is None:
            raise ValueError(f"{self.task} runs in one process; start it without torchrun")
        if why := cell.task.unfit(cell.backbone):
            raise BackboneError(f"{self.task}: {why}")
        if why := cell.task.too_few_images(self.data):
            raise DataError(f"{self.task}: {why}")
        if finished(cell) is None:
            check_records_of_name([cell])
        if self.dry_run:
            print(f"{cell.task}\nrecord: {cell.path}")
            for line in departures(cell):
                print(f"departs from the paper: {line}")
            return 0
        if this_process().is_main:
            given = self.declared is not None
            backbone, line = settle_declaration(cell.settings.records, cell.backbone, given=given)
            cell = replace(cell, backbone=backbone)
            if line:
                print(line, file=sys.stderr)
        record = evaluate_on_gpus(cell)
        if this_process().is_main:
            print(summary(cell, record))
        return 0

    def check(self) -> None:
        """Raise a BackboneError or ValueError for a misspelled word, before torch is imported."""
        check_ranges(self, RANGES)
        default = default_name(self.ckpt)
        check_row_name(default if self.name is None else self.name, default)
        task_of(self.task)
        length_fraction(self.schedule)
        if self.declared:
            check_declared_recipe(self.declared)
        engine_for(self.training.engine)
        require_file(self.ckpt)

    def cell(self) -> Cell:
        """Return the cell to evaluate; BackboneError or ValueError if the request is invalid."""
        self.check()
        backbone = load(self.ckpt, self.network, name=self.name, branch=self.branch)
        if self.heads:
            backbone = with_heads(backbone, self.heads)
        backbone = with_declared_recipe(backbone, self.declared or "")
        if self.random:
            backbone = backbone.random_twin()
        return Cell(
            key=self.task,
            backbone=backbone,
            seed=self.seed,
            settings=CellSettings.of(self),
            with_weights=self.with_weights,
        )


def summary(cell: Cell, record: Record) -> str:
    """Return the result line of a cell: task, metrics, time, file."""
    file = file_for_record(cell.path, record)
    values = "  ".join(f"{name} {value:.2f} %" for name, value in record.metrics.items())
    return f"{cell.key}  {values}  {format_duration(record.wall_s)}  ->  {file}"
