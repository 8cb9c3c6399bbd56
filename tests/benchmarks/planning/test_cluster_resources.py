"""Resources that a cell requests follow from its protocol and the user's options."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.planning.cluster_resources import resource_notes, resources, with_cluster_gpus
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import PlannedCell
from pretrain.running.processes import assume_gpus
from transfer.backbone import Backbone
from transfer.cells.request import Cell, CellSettings
from transfer.finetuning.options import TrainingOptions


@pytest.fixture
def backbone(small_backbone: Backbone) -> Backbone:
    """A backbone with the papers' image size."""
    form = replace(small_backbone.input, size_px=224)
    return replace(small_backbone, arch="resnet50", input=form, state_dict={})


def row(
    backbone: Backbone, key: str, training: TrainingOptions | None = None, gpus: int = 1
) -> PlannedCell:
    settings = CellSettings(
        data=Path("d"), results=Path("r"), runs=Path("u"), training=training or TrainingOptions()
    )
    with assume_gpus(0):
        cell = with_cluster_gpus(
            Cell(key=key, backbone=backbone, seed=0, settings=settings),
            SlurmOptions(cell_gpus=gpus),
        )
        return PlannedCell(cell, "run", (), cell.task.gpu_hours(backbone))


def test_a_probe_asks_for_one_gpu_and_a_detector_for_a_node(backbone: Backbone) -> None:
    probe = resources(row(backbone, "in100_linear@jcl"), SlurmOptions())
    detector = resources(row(backbone, "coco_det"), SlurmOptions())
    assert (probe.gpus, probe.processes, probe.cpus) == (1, 1, 8)
    assert (detector.gpus, detector.processes, detector.cpus) == (8, 1, 64)
    slow = replace(row(backbone, "coco_det"), gpu_hours=5000.0)
    assert resources(slow, SlurmOptions()).hours == 24  # a day at a time
    half = row(backbone, "coco_det", TrainingOptions(precision="float16"))
    assert "float16" in str(half.cell.task)  # planned where there is no GPU


def test_half_the_gpus_take_twice_the_time_and_leave_the_protocol_alone(
    backbone: Backbone,
) -> None:
    eight = row(backbone, "voc0712_det_c4")
    four = row(backbone, "voc0712_det_c4", TrainingOptions(gpus=4))
    options = SlurmOptions()
    assert resources(four, options).gpus == 4
    assert resources(four, options).hours == pytest.approx(
        2 * resources(eight, options).hours, abs=1
    )
    (said,) = resource_notes([four], options)
    assert "4 GPUs, 4 images of the batch on each" in said
    assert "batch size 16, so by the linear scaling rule learning rate 0.02" in said


def test_another_batch_is_told_with_the_linear_scaling_rule(backbone: Backbone) -> None:
    (said,) = resource_notes(
        [row(backbone, "coco_det", TrainingOptions(batch_size=8))], SlurmOptions()
    )
    assert "batch size 8, so by the linear scaling rule learning rate 0.01 and 180000 it" in said


def test_frozen_networks_compute_on_the_nodes_in_what_the_nodes_have(backbone: Backbone) -> None:
    probe, few = row(backbone, "in100_linear@jcl"), row(backbone, "cifar10_semi_1pct")
    (said,) = resource_notes([probe, few], SlurmOptions())
    assert "bfloat16 on the GPUs of the nodes" in said
    asked = replace(probe.cell, settings=replace(probe.cell.settings, features_in="float32"))
    assert resource_notes([few, replace(probe, cell=asked)], SlurmOptions()) == []
    assert resource_notes([probe], SlurmOptions(cell_gpus=0)) == []
