"""The papers' numbers, the choice of the rate on held-out labels, lists and draws kept apart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import transfer.finetuning.classification
from pretrain.running.errors import NotFiniteError
from tests.pretrain.test_memory import maps_of
from transfer.backbone import Backbone
from transfer.cells.request import Cell, CellSettings, departures
from transfer.datasets.folders import Folders
from transfer.datasets.images import Images
from transfer.datasets.synthetic.generate import generate
from transfer.finetuning.classification import FineTuning
from transfer.finetuning.options import TrainingOptions
from transfer.record import protocol_hash
from transfer.tasks.semi_supervised import IMAGE_GB, TASKS, SemiSupervised


def test_what_is_asked_of_a_training_is_told_but_not_how_many_rates_go_at_once(
    small_backbone: Backbone, settings: CellSettings
) -> None:
    asked = TrainingOptions(learning_rates=(0.01, 0.1), precision="bfloat16", rates_at_once=3)
    cell = Cell(
        key="cifar10_semi_10pct",
        backbone=small_backbone,
        seed=0,
        settings=replace(settings, schedule="paper", training=asked),
    )
    found = departures(cell)
    assert "head_rates (0.01, 0.1) instead of 7 values from 0.01 to 10" in found
    assert "precision bfloat16 instead of float32" in found
    assert not any("at_once" in line for line in found)
    task = cell.task
    assert isinstance(task, SemiSupervised)
    assert task.rates_at_once == 3
    plain = replace(task, rates_at_once=0)
    assert protocol_hash("cifar10_semi_10pct", task) == protocol_hash("cifar10_semi_10pct", plain)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("listed")
    generate(data, keys=["in1k_1pct"])
    return data


def test_without_the_list_a_draw_takes_its_place_under_another_name(
    listed: Path, only: Callable[..., Path], small_backbone: Backbone, settings: CellSettings
) -> None:
    key = "in1k_semi_1pct@co2"
    task = TASKS[key]
    assert task.with_data(listed) == task
    unlisted = replace(settings, data=only("in1k"), schedule="paper")
    drawn = Cell(key=key, backbone=small_backbone, seed=0, settings=unlisted)
    assert (drawn.task.protocol, drawn.task.datasets()) == ("co2-2021-drawn/1", ("in1k",))
    assert "co2-2021-drawn-1" in drawn.path.name
    assert "drawn_share 0.01 instead of 0.0" in departures(drawn)


def folders(data: Path, work: Path) -> Folders:
    return Folders(data, work, work)


def test_a_draw_labels_as_many_of_each_class(
    small_backbone: Backbone, small_data: Path, tmp_path: Path
) -> None:
    counts = {}
    for percent, key in ((10, "cifar10_semi_10pct"), (100, "cifar10_semi_100pct")):
        prepared = TASKS[key].prepare(small_backbone, folders(small_data, tmp_path))
        counts[percent] = np.bincount(prepared.labelled.labels.numpy()).tolist()
    assert counts == {10: [3] * 6, 100: [32] * 6}


DIVERGES_ABOVE = 20.0


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], float]]:
    """Replaces training: names learned from and rate of each call; the middle rate is the best."""
    calls: list[tuple[set[str], float]] = []

    def train(_: Any, images: Images, courses: list[FineTuning], **options: Any) -> Any:
        (course,) = courses
        rate = course.learning_rate * course.head_factor
        calls.append(({images.name(i) for i in range(len(images))}, rate))
        return [SimpleNamespace()]

    def predicted(classifier: nn.Module, images: Images, *_: Any) -> Tensor:
        scores = torch.eye(len(images.class_names))[images.labels]
        rate = calls[-1][1]
        if rate > DIVERGES_ABOVE:
            return scores * float("nan")
        right = len(images) if rate == pytest.approx(1.0) else len(images) // 2
        scores[right:] = scores[right:].roll(1, 1)
        return scores

    monkeypatch.setattr(transfer.finetuning.classification, "train_rates", train)
    monkeypatch.setattr(transfer.finetuning.classification, "predict_scores", predicted)
    monkeypatch.setattr(transfer.tasks.semi_supervised, "asdict", lambda _: {})
    return calls


def test_the_rate_best_on_held_out_labels_is_trained_on_all_of_them(
    scored: list[tuple[set[str], float]],
    listed: Path,
    small_backbone: Backbone,
    tmp_path: Path,
) -> None:
    task = replace(TASKS["in1k_semi_1pct@lorac"], head_rates=(0.1, 1.0, 10.0))
    prepared = task.prepare(small_backbone, folders(listed, tmp_path))
    predictions = task.run(prepared, folders(listed, tmp_path), seed=0)
    found = task.details(predictions)
    assert [rate for _, rate in scored] == pytest.approx([0.1, 1.0, 10.0, 1.0])
    learned, everything = scored[0][0], scored[3][0]
    assert (len(learned), len(everything)) == (50, 60)
    assert learned < everything
    assert found["held_out_top1"] == {"0.1": 50.0, "1": 100.0, "10": 50.0}
    assert (found["head_rate"], found["at_grid_edge"]) == (1.0, False)
    assert (found["labels"], found["diverged_rates"]) == ("published list", [])
    assert found["crops"] == "crops/2"
    assert task.metrics(predictions)["top1"] == 100.0


def test_a_rate_that_ends_in_no_number_is_told_and_the_others_count(
    scored: list[tuple[set[str], float]],
    listed: Path,
    small_backbone: Backbone,
    tmp_path: Path,
) -> None:
    task = replace(TASKS["in1k_semi_1pct@lorac"], head_rates=(1.0, 100.0))
    prepared = task.prepare(small_backbone, folders(listed, tmp_path))
    found = task.details(task.run(prepared, folders(listed, tmp_path), seed=0))
    assert (found["head_rate"], found["diverged_rates"]) == (1.0, [100.0])
    with pytest.raises(NotFiniteError, match="rate 100 has diverged"):
        replace(task, head_rates=(100.0,)).run(prepared, folders(listed, tmp_path), seed=0)


def test_a_drawn_list_is_stored_and_named_in_the_record(
    scored: list[tuple[set[str], float]],
    listed: Path,
    small_backbone: Backbone,
    tmp_path: Path,
) -> None:
    task = replace(TASKS["in1k_semi_10pct@co2"], dataset="in1k", drawn_share=0.1)
    where = folders(listed, tmp_path / "work")
    found = task.details(task.run(task.prepare(small_backbone, where), where, seed=0))
    stored = where.lists / found["list_of_labelled"]["file"]  # type: ignore[index]
    assert stored.name.startswith("in1k-labelled-10pct-")
    assert {line[9:].removeprefix(" ") for line in stored.read_text().splitlines()} == scored[0][0]


def test_rates_side_by_side_score_and_train_as_one_after_another(
    small_backbone: Backbone, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    train_rates = transfer.finetuning.classification.train_rates

    def counted(classifiers: Any, *arguments: Any, **options: Any) -> Any:
        groups.append(len(classifiers))
        return train_rates(classifiers, *arguments, **options)

    monkeypatch.setattr(transfer.finetuning.classification, "train_rates", counted)
    task = replace(
        TASKS["cifar10_semi_10pct"].at_schedule("smoke"), head_rates=(0.01, 0.1, 1.0), crop_px=16
    )
    scores, details = {}, {}
    for at_once in (1, 2):
        asked = replace(task, rates_at_once=at_once)
        where = folders(small_data, tmp_path / str(at_once) / "work")
        predictions = asked.run(asked.prepare(small_backbone, where), where, seed=0)
        scores[at_once] = predictions.scores
        details[at_once] = {**predictions.details, "training": None}
    assert groups == [1, 1, 1, 1, 2, 1, 1]
    assert torch.equal(scores[1], scores[2])
    assert details[1] == details[2]


def test_the_memory_of_a_plan_is_that_of_the_maps() -> None:
    # the counted maps are in bfloat16, but for the indices of the pool
    assert pytest.approx(2 * maps_of(224) / 1e9, rel=0.03) == IMAGE_GB
    task = TASKS["in1k_semi_1pct@co2"]
    assert isinstance(task, SemiSupervised)
    assert task.memory_gb() == pytest.approx(256 * IMAGE_GB)
    assert replace(task, precision="bfloat16").memory_gb() == pytest.approx(128 * IMAGE_GB)
