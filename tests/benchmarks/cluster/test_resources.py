"""Requested resources follow from the protocol and the user's options."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster.arrays import resources, with_cluster_gpus
from benchmarks.execution.graph import Job
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import PlannedCell, render_plan
from pretrain.running.processes import assume_gpus
from slurm.cluster import Cluster
from transfer.cells.cell import Cell
from transfer.cells.request import Settings
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions
from transfer.hours import Measured, gpu_hours

WHERE = Cluster({})


@pytest.fixture
def backbone(small_backbone: Encoder) -> Encoder:
    """A backbone with the papers' image size."""
    form = replace(small_backbone.input, size_px=224)
    return replace(small_backbone, arch="resnet50", input=form, state_dict={})


def row(backbone: Encoder, key: str, **training: Any) -> PlannedCell:
    folder, options = Path("folder"), TrainingOptions(**training)
    settings = Settings(data=folder, results=folder, runs=folder, training=options)
    cell = Cell.with_backbone(task=key, backbone=backbone, seed=0, settings=settings)
    with assume_gpus(0):
        cell = with_cluster_gpus(cell, SlurmOptions())
        return PlannedCell(cell, "run", (), gpu_hours(cell.task.units(), backbone, Measured()))


def job(row: PlannedCell) -> Job:
    return Job((row.cell,), row.gpu_hours)


def test_a_probe_asks_for_one_gpu_and_a_detector_for_a_node(backbone: Encoder) -> None:
    probe = resources(job(row(backbone, "in100_linear@jcl")), SlurmOptions(), WHERE)
    detector = resources(job(row(backbone, "coco_det")), SlurmOptions(), WHERE)
    assert (probe.gpus, probe.processes, probe.cpus) == (1, 1, 8)
    assert (detector.gpus, detector.processes, detector.cpus) == (8, 1, 64)
    slow = replace(row(backbone, "coco_det"), gpu_hours=5000.0)
    assert resources(job(slow), SlurmOptions(), WHERE).hours == 24  # a day at a time
    half = row(backbone, "coco_det", precision="float16")
    assert "float16" in str(half.cell.task)  # planned where there is no GPU
    # half the GPUs take twice the time
    eight, four = (
        resources(job(row(backbone, "voc0712_det_c4", gpus=gpus)), SlurmOptions(), WHERE)
        for gpus in (0, 4)
    )
    assert four.gpus == 4
    assert four.hours == pytest.approx(2 * eight.hours, abs=1)


def test_the_plan_tells_a_detectors_gpus_whatever_stands_before_it(backbone: Encoder) -> None:
    output = render_plan([row(backbone, "voc07_svm"), row(backbone, "coco_det")])
    assert "on 8 GPUs; needs a GPU with at least 3.0 GB" in output
