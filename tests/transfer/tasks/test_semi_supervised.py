"""The papers' numbers, learning rate selection, and separate lists."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import transfer.finetuning.classification
from pretrain.running.errors import NotFiniteError
from tests.pretrain.test_step_memory import maps_of
from tests.transfer.tasks.labeled_images import labeled
from transfer.cells.cell import Cell, deviations
from transfer.cells.request import Settings
from transfer.datasets.catalog import open_split
from transfer.datasets.folders import Folders
from transfer.datasets.images import Images
from transfer.encoders.encoder import Encoder, random_backbone
from transfer.finetuning.classification import FineTuning
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.feature_cache import Predictions
from transfer.hours import IMAGE_GB, Measured, gpu_hours
from transfer.tasks.semi_supervised import TASKS


def test_changed_options_are_listed_as_deviations(
    small_backbone: Encoder, settings: Settings
) -> None:
    requested = TrainingOptions(learning_rates=(0.01, 0.1), precision="bfloat16")
    cell = Cell.with_backbone(
        task="cifar10_semi_10pct",
        backbone=small_backbone,
        seed=0,
        settings=replace(settings, schedule="paper", training=requested),
    )
    result = deviations(cell)
    assert "head_rates (0.01, 0.1) instead of 7 values from 0.01 to 10" in result
    assert "precision bfloat16 instead of float32" in result


def test_without_the_list_a_draw_takes_its_place_under_another_name(
    small_data: Path, only: Callable[..., Path], small_backbone: Encoder, settings: Settings
) -> None:
    key = "in1k_semi_1pct@co2"
    task = TASKS[key]
    assert task.with_data(small_data) == task
    unlisted = replace(settings, data=only("in1k"), schedule="paper")
    sampled = Cell.with_backbone(task=key, backbone=small_backbone, seed=0, settings=unlisted)
    assert (sampled.task.protocol, sampled.task.datasets()) == ("co2-2021-drawn/1", ("in1k",))
    assert "co2-2021-drawn-1" in sampled.path.name
    assert "drawn_share 0.01 instead of 0.0" in deviations(sampled)
    second = replace(task, dataset="cifar10")  # a user's; no list was published
    assert second.with_data(settings.data / "nowhere") == second


def run(task: Any, backbone: Encoder, data: Path, work: Path) -> tuple[Predictions, Any]:
    """Return predictions and details."""
    folders = Folders(data, work, work)
    predictions = task.run(task.prepare(backbone, folders), folders, seed=0)
    return predictions, task.details(predictions)


Calls = list[tuple[set[str], float]]


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Replaces training: names learned from and rate of each call.

    1 is the best, 100 diverges.
    """
    calls: Calls = []

    def train(_: Any, images: Images, course: FineTuning, **options: Any) -> Any:
        rate = round(course.learning_rate * course.head_factor, 6)
        calls.append(({images.name(i) for i in range(len(images))}, rate))
        return rate, {}

    def predicted(rate: float, images: Images, *_: Any) -> Tensor:
        scores = torch.eye(len(images.class_names))[images.labels]
        if rate == 100:
            return scores * float("nan")
        right = len(images) if rate == 1 else len(images) // 2
        scores[right:] = scores[right:].roll(1, 1)
        return scores

    monkeypatch.setattr(transfer.finetuning.classification, "fine_tune", train)
    monkeypatch.setattr(transfer.finetuning.classification, "predict_scores", predicted)
    return calls


def test_the_rate_best_on_held_out_labels_is_trained_on_all_of_them(
    scored: Calls,
    small_data: Path,
    small_backbone: Encoder,
    tmp_path: Path,
) -> None:
    task = replace(TASKS["in1k_semi_1pct@lorac"], head_rates=(0.1, 1.0, 10.0, 100.0))
    predictions, result = run(task, small_backbone, small_data, tmp_path)
    assert [rate for _, rate in scored] == [0.1, 1, 10, 100, 1]
    learned, everything = scored[0][0], scored[-1][0]
    assert (len(learned), len(everything)) == (50, 60)
    assert learned < everything
    assert result["held_out_top1"] == {"0.1": 50.0, "1": 100.0, "10": 50.0}
    assert (result["head_rate"], result["at_grid_edge"]) == (1.0, False)
    assert (result["labels"], result["diverged_rates"]) == ("published list", [100.0])
    assert result["crops"] == "crops/2"
    assert task.metrics(predictions)["top1"] == 100.0
    with pytest.raises(NotFiniteError, match="rate 100"):
        run(replace(task, head_rates=(100.0,)), small_backbone, small_data, tmp_path)


def test_sampled_list_is_balanced_by_class(
    scored: Calls, small_data: Path, small_backbone: Encoder, tmp_path: Path
) -> None:
    task = replace(TASKS["cifar10_semi_10pct"], head_rates=(1.0,))
    _, result = run(task, small_backbone, small_data, tmp_path)
    stored = Folders(small_data, tmp_path, tmp_path).lists / result["list_of_labelled"]["file"]
    assert stored.name.startswith("cifar10-labelled-10pct-")
    names = {line[9:].removeprefix(" ") for line in stored.read_text().splitlines()}
    assert names == scored[0][0]
    images = open_split("cifar10", small_data, "trainval")
    labels = [images[i][1] for i in range(len(images)) if images.name(i) in names]
    assert np.bincount(labels).tolist() == [3] * 6


def test_a_class_with_fewer_images_than_are_drawn_is_named() -> None:
    task = TASKS["cifar10_semi_10pct"]
    assert task.too_few_images_of_a_class(labeled(30, 30, 2)) == ""
    reason = task.too_few_images_of_a_class(labeled(30, 30, 1))
    assert "cifar10, trainval: class 'c' has 1 of the 2 images" in reason
    everything = replace(TASKS["cifar10_semi_100pct"], head_rates=(1.0,))
    assert everything.too_few_images_of_a_class(labeled(30, 30, 1)) == ""


def test_a_class_with_no_image_to_hold_out_is_named_unless_one_rate_is_given() -> None:
    task, images = TASKS["in1k_semi_1pct@lorac"], labeled(12, 1, 12)
    reason = task.too_few_images_of_a_class(images)
    assert "in1k_1pct, trainval: class 'b' has 1 of the 2 images" in reason
    assert "--learning-rates 0.316" in reason
    single = task.with_options(TrainingOptions(learning_rates=(0.316,)))
    assert single.too_few_images_of_a_class(images) == ""


def test_the_hours_of_a_plan_count_every_head() -> None:
    item, three = (
        random_backbone(arch=arch, stem="imagenet", seed=0)
        for arch in ("resnet18", "resnet18-heads3")
    )
    measured = Measured(seconds={"classifier float32": 0.1 / 256})
    task = TASKS["in1k_semi_10pct@co2"]
    for seconds in (Measured(), measured):
        hours = [gpu_hours(task.units(), network, seconds) for network in (item, three)]
        share = hours[1] / hours[0]
        assert share == pytest.approx((0.44 + 2 * 0.10) / 0.44)


def test_the_memory_of_a_plan_is_that_of_the_maps() -> None:
    # the counted maps are in bfloat16, but for the indices of the pool
    assert pytest.approx(2 * maps_of(224) / 1e9, rel=0.03) == IMAGE_GB["classifier"]
    task = TASKS["in1k_semi_1pct@co2"]
    assert task.memory_gb(1) == pytest.approx(256 * IMAGE_GB["classifier"])
    half = replace(task, precision="bfloat16")
    assert half.memory_gb(1) == pytest.approx(task.memory_gb(1) / 2)
