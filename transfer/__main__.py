"""python -m transfer TASK | check-data | inspect | generate-data | convert-sbd | make-corruptions |
--list.

One task on one checkpoint, or a look at checkpoints and data. benchmarks/run_all.py runs them all.
Exit status: 0 done, 1 failed, 2 the request is wrong, 75 stopped by a signal, to go on.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from transfer import stop
from transfer.backbone import (
    BackboneError,
    inspect_file,
    load_backbone,
    random_twin,
    with_heads,
)
from transfer.cell import Cell, Place, departures, registered
from transfer.console import duration
from transfer.convert.inspection import render as render_inspection
from transfer.datasets.catalog import DATASETS
from transfer.datasets.check import check, render
from transfer.datasets.corrupt import make_corruptions
from transfer.datasets.generate import generate
from transfer.datasets.images import DataError
from transfer.datasets.sbd import convert_sbd
from transfer.detection.engines import engine_for
from transfer.features import AskedPrecision
from transfer.many_gpus import evaluate_where_asked
from transfer.processes import joined, this_process
from transfer.record import Record
from transfer.schedule import share
from transfer.tasks import EXTRA, TASKS, FineTuned
from transfer.training.options import TrainingOptions


def data_folder() -> Path:
    """$DATASETS, or ./datasets."""
    return Path(os.environ.get("DATASETS", "datasets"))


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate one checkpoint on one task."""

    task: Annotated[str, tyro.conf.Positional]
    """Of `python -m transfer --list`."""
    ckpt: Path
    """Backbone file, or a checkpoint of another project."""
    name: str | None = None
    """Row in the tables; the file's name if not given."""
    data: Path = field(default_factory=data_folder)
    """Folder of all data sets; $DATASETS or ./datasets."""
    results: Path = Path("results")
    """Where records go."""
    runs: Path = Path("runs")
    """Where caches and unfinished work lie."""
    schedule: str = "paper"
    """paper, short (a tenth of its length), smoke (a few steps), or a share such as 0.02."""
    seed: int = 0
    """Of initial weights and random crops."""
    tolerate: int = 0
    """Missing, surplus or unreadable images, and broken annotations, that a set may have."""
    random: bool = False
    """Evaluate a random initialization of the checkpoint's network in its place."""
    heads: tuple[int, ...] = ()
    """Of a LooC++ or MoCo++ file, such as 0 2: their features side by side; all if not given."""
    features_in: AskedPrecision = "auto"
    """Arithmetic of frozen networks; auto: bfloat16 on a GPU, float32 elsewhere."""
    training: Annotated[TrainingOptions, tyro.conf.arg(name="")] = field(
        default_factory=TrainingOptions
    )
    """Of tasks that train the whole network."""
    with_weights: bool = False
    """Train again where the record is there, but not the classifier's weights that others use."""
    dry_run: bool = False
    """Only say what would be done."""

    def __call__(self) -> int:
        """Exit status."""
        cell = self.cell()
        if this_process().speaks:
            print(f"backbone  {cell.backbone.source}", file=sys.stderr)
        if this_process().num_processes > 1 and not isinstance(cell.task, FineTuned):
            raise ValueError(f"{self.task} runs in one process; start it without torchrun")
        if self.dry_run:
            print(f"{cell.task}\nrecord: {cell.path}")
            for line in departures(cell):
                print(f"departs from the paper: {line}")
            return 0
        record = evaluate_where_asked(cell)
        if this_process().speaks:
            print(summary(cell, record))
        return 0

    def cell(self) -> Cell:
        """What is to be evaluated; BackboneError or ValueError if it cannot be."""
        registered(self.task)
        share(self.schedule)
        engine_for(self.training.engine)
        place = Place(
            data=self.data,
            results=self.results,
            runs=self.runs,
            schedule=self.schedule,
            tolerated=self.tolerate,
            training=self.training,
            features_in=self.features_in,
        )
        backbone = load_backbone(self.ckpt, name=self.name)
        if self.heads:
            backbone = with_heads(backbone, self.heads)
        if self.random:
            backbone = random_twin(backbone)
        return Cell(
            key=self.task,
            backbone=backbone,
            seed=self.seed,
            place=place,
            with_weights=self.with_weights,
        )


@dataclass(frozen=True, kw_only=True)
class CheckData:
    """Count every data set against its published numbers and look for broken images."""

    data: Path = field(default_factory=data_folder)
    """Folder of all data sets; $DATASETS or ./datasets."""
    sets: tuple[str, ...] = ()
    """Only these; all if not given."""
    decode: bool = True
    """Decode every image; without, headers and end markers are read."""

    def __call__(self) -> int:
        """Exit status: 1 if a set that is there is not whole."""
        unknown = [key for key in self.sets if key not in DATASETS]
        if unknown:
            raise ValueError(f"no data set {unknown[0]!r}; there are {', '.join(DATASETS)}")
        keys = self.sets or tuple(DATASETS)
        reports = [check(key, self.data, decode=self.decode) for key in keys]
        print(render(reports))
        return int(any(report.found and not report.ok for report in reports))


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Tell what a checkpoint file is, and account for every tensor in it."""

    file: Annotated[Path, tyro.conf.Positional]
    """The file."""

    def __call__(self) -> int:
        """Exit status."""
        print(render_inspection(inspect_file(self.file)))
        return 0


@dataclass(frozen=True, kw_only=True)
class GenerateData:
    """Write a small version of every data set, in its true layout, with a learnable signal."""

    data: Path = Path("datasets-small")
    """Where."""
    seed: int = 0
    """Of everything drawn."""

    def __call__(self) -> int:
        """Exit status."""
        generate(self.data, seed=self.seed)
        print(f"small versions of {len(DATASETS)} data sets  ->  {self.data}")
        return 0


@dataclass(frozen=True, kw_only=True)
class ConvertSBD:
    """Write SBD's masks as VOC 2012's SegmentationClassAug; once, before segmentation."""

    data: Path = field(default_factory=data_folder)
    """Folder of all data sets, with VOC 2012 in it; $DATASETS or ./datasets."""
    sbd: Path | None = None
    """Folder that holds cls/*.mat; looked for below the data folder if not given."""

    def __call__(self) -> int:
        """Exit status."""
        count = convert_sbd(self.data, self.sbd)
        print(f"{count} masks of SBD  ->  {self.data / 'VOCdevkit/VOC2012/SegmentationClassAug'}")
        return 0


@dataclass(frozen=True, kw_only=True)
class MakeCorruptions:
    """Corrupt ImageNet-100's test images by a package, for where ImageNet-C is absent."""

    data: Path = field(default_factory=data_folder)
    """Folder of all data sets; $DATASETS or ./datasets."""
    workers: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """Processes, one per core if not given; the images are the same with any number."""

    def __call__(self) -> int:
        """Exit status."""
        made = make_corruptions(self.data, workers=self.workers)
        print(f"{made}  ->  {self.data / 'imagenet-c-made'}")
        return 0


COMMANDS = {
    "check-data": CheckData,
    "inspect": Inspect,
    "generate-data": GenerateData,
    "convert-sbd": ConvertSBD,
    "make-corruptions": MakeCorruptions,
}


def summary(cell: Cell, record: Record) -> str:
    """The last line of a cell: task, metrics, time, file."""
    values = "  ".join(f"{name} {value:.2f} %" for name, value in record.metrics.items())
    return f"{cell.key}  {values}  {duration(record.wall_s)}  ->  {cell.path}"


def list_tasks() -> str:
    """A line per task: key, protocol, data, the first line of its protocol's description."""
    lines = []
    for key, task in {**TASKS, **EXTRA}.items():
        text = (type(task).__doc__ or "").splitlines()[0]
        lines.append(f"{key:<28}{task.protocol:<24}{', '.join(task.datasets()):<18}{text}")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Exit status: 0 done, 1 failed, 2 the request is wrong."""
    if words[:1] == ["--list"]:
        print(list_tasks())
        return 0
    command = COMMANDS.get(words[0]) if words else None
    stop.listen()
    try:
        if command is not None:
            return tyro.cli(command, args=words[1:], prog=f"python -m transfer {words[0]}")()
        request = tyro.cli(Evaluate, args=words, prog="python -m transfer", description=__doc__)
        with joined():
            return request()
    except (BackboneError, DataError, ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ArithmeticError, OSError, RuntimeError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(stop.exit_status(main, sys.argv[1:]))
