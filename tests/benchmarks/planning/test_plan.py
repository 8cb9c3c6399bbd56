"""Contents of a plan: states, hours, shared passes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.execution.graph import job_graph
from benchmarks.planning.plan import (
    plan_cell,
    protocol_notes,
    render_plan,
    with_jobs_and_hours,
)
from pretrain.running.processes import assume_gpus
from tests.benchmarks.conftest import Rows
from transfer.cells.cell import Cell
from transfer.cells.request import Settings
from transfer.encoders.encoder import Encoder, random_backbone
from transfer.finetuning.options import TrainingOptions
from transfer.hours import Measured, core_hours, gpu_hours, save_seconds


def test_heads_that_another_row_trains_are_counted_once(rows: Rows) -> None:
    keys = ("in1k_linear@jcl", "in1k_linear@lorac", "in1k_linear@uniclr", "in100_linear@jcl")
    planned = rows(*keys, names=("one", "other"), seeds=2, hours=2.0)
    result = with_jobs_and_hours(planned, 1, 1)
    assert [row.gpu_hours for row in result] == [*[2.0] * 2, *[0.0] * 4, *[2.0] * 2] * 2
    assert result[2].reason == result[4].reason == "trained together with in1k_linear@jcl"
    completed = replace(planned[0], state="cached", gpu_hours=0.0)
    assert with_jobs_and_hours([completed, planned[2]], 1, 1)[1].gpu_hours == 2.0
    # a longer probe of a pass costs what it takes beyond the others
    planned = rows(*(f"in100_linear@{reading}" for reading in ("jcl", "looc", "lorac")))
    planned[1] = replace(planned[1], gpu_hours=2.5)
    result = with_jobs_and_hours(planned, 1, 1)
    assert [row.gpu_hours for row in result] == [1.0, 1.5, 0.0]
    assert result[1].reason == "extends the training pass of in100_linear@jcl"
    assert [row.gpu_hours for row in with_jobs_and_hours(planned[1:], 1, 1)] == [2.5, 0.0]


def test_images_of_several_backbones_are_decoded_once_in_the_plan(rows: Rows) -> None:
    five = [replace(row, core_hours=16.0) for row in rows("in100_knn", names=tuple("abcde"))]
    for cores, expected in {4: [4.0, 0.0, 0.0, 0.0, 1.0], 16: [1.0] * 5}.items():
        result = with_jobs_and_hours(five, cores, 1)
        assert [row.gpu_hours for row in result] == expected
    assert result[1].reason == "shares feature extraction with a"
    features = rows("in100_knn", "in100_lowshot_knn")  # of one backbone: extracted once
    assert [row.gpu_hours for row in with_jobs_and_hours(features, 1, 1)] == [1.0, 0.0]


@pytest.mark.parametrize(("processes", "jobs"), [(1, 1), (3, 3), (100, 4)])
def test_jobs_divide_networks_that_take_longer_than_decoding(
    rows: Rows, processes: int, jobs: int
) -> None:
    eight = [replace(row, core_hours=32.0) for row in rows("in100_knn", names=tuple("abcdefgh"))]
    priced = with_jobs_and_hours(eight, 16, processes)
    hours = [job.hours for job in job_graph(priced)]
    assert len(hours) == jobs
    assert max(hours) == {1: 8.0, 3: 3.0, 4: 2.0}[jobs]


@pytest.mark.parametrize(("cores", "limit"), [(4, "decoding on 4 CPU cores"), (32, "the GPU")])
def test_the_plan_names_what_limits_frozen_networks(rows: Rows, cores: int, limit: str) -> None:
    (row,) = (replace(row, core_hours=16.0) for row in rows("in100_knn"))
    (row,) = with_jobs_and_hours([row], cores, 1)
    hours = max(1.0, 16.0 / cores)
    line = f"frozen networks are limited by {limit} {hours:.2f} h (one core decodes 245 images/s"
    assert line in render_plan([row])


def test_decoding_takes_a_core_as_long_as_measured() -> None:
    seconds = {"decode": 0.01, "decode crop": 0.02, "kept crop": 0.001}
    measured = Measured(gpu="NVIDIA H200", date="2026-11-22", seconds=seconds)
    backbone = random_backbone(arch="resnet50", stem="imagenet", seed=0)
    units = {"forward": 3600.0, "crop": 7200.0, "classifier float32": 1.0}
    for is_cached, expected_s in ((False, 36 + 144), (True, 36 + 7.2)):
        hours = core_hours(units, backbone, measured, is_cached=is_cached)
        assert hours == pytest.approx(expected_s / 3600)


def test_too_few_images_are_named_in_the_plan(small_backbone: Encoder, settings: Settings) -> None:
    paper = replace(settings, schedule="paper")
    cell = Cell.with_backbone(task="cifar10_knn", backbone=small_backbone, seed=0, settings=paper)
    row = plan_cell(cell, Measured())
    assert row.state == "missing data"
    assert "200 neighbors are needed, but cifar10 has 192" in render_plan([row])


def test_columns_of_the_plan_are_separate(rows: Rows) -> None:
    (row,) = rows("cifar10_view_statistics@feature")
    words = render_plan([row]).splitlines()[1].split()
    assert words[1:4] == [row.cell.key, row.cell.task.protocol, row.cell.task.engine]


def test_deviations_of_unsupported_cells_are_not_shown(rows: Rows) -> None:
    (row,) = rows("cifar10_linear")
    assert protocol_notes([row])
    assert not protocol_notes([replace(row, state="unsupported")])


@pytest.fixture
def measured(settings: Settings) -> Measured:
    """Store measured seconds."""
    seconds = {
        "forward resnet50 bfloat16": 1 / 8000,
        "forward resnet50 float32": 1 / 2000,
        "crop": 1 / 4000,
        "coco_det float32": 0.5 / 16,
        "voc12_seg_fcn float32": 0.25 / 16,
        "classifier float32": 0.2 / 256,
    }
    measured = Measured(gpu="NVIDIA H200", date="2026-11-22", seconds=seconds)
    save_seconds(settings.runs, measured)
    return measured


def hours(key: str, settings: Settings, measured: Measured, **changes: Any) -> float:
    """Return the hours of a ResNet-50 at 224 px on a GPU."""
    backbone = replace(random_backbone(arch="resnet50", stem="imagenet", seed=0), state_dict={})
    paper = replace(settings, schedule="paper", **changes)
    with assume_gpus(1):
        cell = Cell.with_backbone(task=key, backbone=backbone, seed=0, settings=paper)
        return gpu_hours(cell.task.units(), cell.feature_backbone, measured)


def test_measured_seconds_replace_assumed_ones(settings: Settings, measured: Measured) -> None:
    assert hours("coco_det", settings, measured) == pytest.approx(90_000 * 0.5 / 3600)
    assert hours("voc12_seg_fcn", settings, measured) == pytest.approx(33_069 * 0.25 / 3600)
    # 50,000 training and 10,000 test images once
    assert hours("cifar10_knn", settings, measured) == pytest.approx(60_000 / 8000 / 3600)
    exact = hours("cifar10_knn", settings, measured, features_in="float32")
    assert exact == pytest.approx(60_000 / 2000 / 3600)
    for key in ("coco_keypoint", "voc0712_det_c4"):  # not measured
        assert hours(key, settings, measured) == hours(key, settings, Measured())


def test_training_hours_depend_on_kind_and_network(
    small_backbone: Encoder, settings: Settings, measured: Measured
) -> None:
    changes = {"crop": 1 / 8000, "classifier float32": 0.1 / 256}
    twice = replace(measured, seconds={**measured.seconds, **changes})
    probe, few, tested = "in100_linear@jcl", "in1k_semi_10pct@co2", 50_000 / 8000 / 3600
    slow, fast = (hours(probe, settings, seconds) for seconds in (measured, twice))
    assert slow == pytest.approx(fast * 2, rel=0.02)
    trained = [hours(few, settings, seconds) - tested for seconds in (measured, twice)]
    assert trained[1] == pytest.approx(trained[0] / 2)
    ours = Measured(seconds={"forward resnet18 bfloat16": 1 / 20_000})
    backbone = replace(small_backbone, precision="bfloat16")
    by_resnet50, by_itself = (
        gpu_hours({"forward": 1.0}, backbone, seconds) for seconds in (measured, ours)
    )
    assert by_resnet50 / by_itself == pytest.approx(0.44 / 8000 * 20_000)


def test_a_plan_names_the_gpu_that_its_hours_were_measured_on(
    small_backbone: Encoder, small_data: Path, settings: Settings, measured: Measured
) -> None:
    training = TrainingOptions(engine="torchvision", gpus=1, images_per_gpu=2)
    paper = replace(settings, data=small_data, schedule="paper", training=training)
    cells = [
        Cell.with_backbone(task=key, backbone=small_backbone, seed=0, settings=paper)
        for key in ("coco_det", "voc12_seg_fcn")
    ]
    with assume_gpus(1):
        text = render_plan([plan_cell(cell, measured) for cell in cells])
    assert "GPU hours: measured on NVIDIA H200, 2026-11-22\n" in text
    assert "detection: about 5.5 GPU hours (measured on NVIDIA H200, 2026-11-22)" in text
    assert "segmentation: about 1.0 GPU hours (measured on NVIDIA H200, 2026-11-22)" in text
    assert "needs a GPU with at least 3.0 GB for a ResNet-50" in text  # two images, model zoo
    assert "assumed" not in text
    rows = [plan_cell(cell, Measured()) for cell in cells]
    assert "GPU hours: assumed; to measure them: make gpu-check" in render_plan(rows)
