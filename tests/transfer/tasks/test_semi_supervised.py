"""The papers' numbers, the choice of the rate on held-out labels, lists and draws kept apart."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import transfer.tasks.semi_supervised
from transfer.backbone import Backbone
from transfer.cell import Cell, Place, departures, evaluate
from transfer.classification import FineTuning
from transfer.datasets.generate import generate
from transfer.datasets.images import Images
from transfer.folders import Folders
from transfer.tasks import EXTRA, FEW_LABELS, TASKS
from transfer.tasks.semi_supervised import SemiSupervised


@pytest.mark.parametrize(
    ("key", "images", "steps", "drops", "rates"),
    [
        # CO2, section 3.3: 20 epochs, 0.01 and 1.0, a fifth after 12 and 16
        ("in1k_semi_1pct@co2", 12_811, 1_001, (601, 801), (0.01, 1.0)),
        ("in1k_semi_10pct@co2-v1", 128_116, 10_009, (6_005, 8_007), (0.01, 1.0)),
        # LORAC, section 6: 30 or 50 epochs; the classifier's rate 250 or 20 times the backbone's
        ("in1k_semi_1pct@lorac", 12_811, 1_501, (901, 1_201), (0.004, 1.0)),
        ("in1k_semi_10pct@lorac", 128_116, 25_023, (15_014, 20_018), (0.05, 1.0)),
    ],
)
def test_length_drops_and_rates_are_those_of_the_papers(
    key: str, images: int, steps: int, drops: tuple[int, int], rates: tuple[float, float]
) -> None:
    course = FEW_LABELS[key].course(images, 1.0)
    assert (course.iterations, course.milestones, course.decay) == (steps, drops, 0.2)
    found = (course.learning_rate, course.learning_rate * course.head_factor)
    assert found == pytest.approx(rates)
    assert (course.batch_size, course.sgd_momentum) == (256, 0.9)


def test_weight_decay_is_that_of_the_host_in_co2_and_none_in_lorac() -> None:
    found = {key.partition("@")[2]: task.weight_decay for key, task in FEW_LABELS.items()}
    assert found == {"co2": 1e-4, "co2-v1": 5e-4, "lorac": 0.0}


def test_lorac_searches_seven_log_spaced_rates_and_co2_none() -> None:
    for key, task in FEW_LABELS.items():
        if key.endswith("@lorac"):
            expected = torch.logspace(-2, 1, 7)
            torch.testing.assert_close(torch.tensor(task.head_rates), expected, rtol=1e-2, atol=0)
        else:
            assert task.head_rates == (1.0,)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("listed")
    generate(data, keys=["in1k_1pct"])
    return data


def test_without_the_list_a_draw_takes_its_place_under_another_name(
    listed: Path, small_backbone: Backbone, place: Place
) -> None:
    key = "in1k_semi_1pct@co2"
    task = FEW_LABELS[key]
    assert task.placed(listed) == task
    drawn = Cell(key=key, backbone=small_backbone, seed=0, place=replace(place, schedule="paper"))
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
        prepared = EXTRA[key].prepare(small_backbone, folders(small_data, tmp_path))
        counts[percent] = np.bincount(prepared.labelled.labels.numpy()).tolist()
    assert counts == {10: [3] * 6, 100: [32] * 6}


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], float]]:
    """Replaces training: names learned from and rate of each call; the middle rate is the best."""
    calls: list[tuple[set[str], float]] = []

    def train(classifier: nn.Module, images: Images, course: FineTuning, **_: Any) -> Any:
        rate = course.learning_rate * course.head_factor
        calls.append(({images.name(i) for i in range(len(images))}, rate))
        return SimpleNamespace()

    def predicted(classifier: nn.Module, images: Images, *_: Any) -> Tensor:
        scores = torch.eye(len(images.class_names))[images.labels]
        rate = calls[-1][1]
        right = len(images) if rate == pytest.approx(1.0) else len(images) // 2
        scores[right:] = scores[right:].roll(1, 1)
        return scores

    monkeypatch.setattr(transfer.tasks.semi_supervised, "train", train)
    monkeypatch.setattr(transfer.tasks.semi_supervised, "predicted", predicted)
    monkeypatch.setattr(transfer.tasks.semi_supervised, "asdict", lambda _: {})
    return calls


def test_the_rate_best_on_held_out_labels_is_trained_on_all_of_them(
    scored: list[tuple[set[str], float]],
    listed: Path,
    small_backbone: Backbone,
    tmp_path: Path,
) -> None:
    task = replace(FEW_LABELS["in1k_semi_1pct@lorac"], head_rates=(0.1, 1.0, 10.0))
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
    assert task.metrics(predictions)["top1"] == 100.0


def test_a_single_rate_is_trained_once_on_all(
    scored: list[tuple[set[str], float]],
    listed: Path,
    small_backbone: Backbone,
    tmp_path: Path,
) -> None:
    task = FEW_LABELS["in1k_semi_1pct@co2"]
    prepared = task.prepare(small_backbone, folders(listed, tmp_path))
    found = task.details(task.run(prepared, folders(listed, tmp_path), seed=0))
    assert [len(names) for names, _ in scored] == [60]
    assert (found["held_out_top1"], found["at_grid_edge"]) == ({}, False)


def test_a_drawn_list_is_stored_and_named_in_the_record(
    scored: list[tuple[set[str], float]],
    listed: Path,
    small_backbone: Backbone,
    tmp_path: Path,
) -> None:
    task = replace(FEW_LABELS["in1k_semi_10pct@co2"], dataset="in1k", drawn_share=0.1)
    where = folders(listed, tmp_path / "work")
    found = task.details(task.run(task.prepare(small_backbone, where), where, seed=0))
    stored = where.lists / found["list_of_labelled"]["file"]  # type: ignore[index]
    assert stored.name.startswith("in1k-labelled-10pct-")
    assert {line[9:].removeprefix(" ") for line in stored.read_text().splitlines()} == scored[0][0]


@pytest.mark.slow
def test_a_run_reports_every_setting(listed: Path, small_backbone: Backbone, place: Place) -> None:
    asked = replace(place, data=listed)
    cell = Cell(key="in1k_semi_1pct@lorac", backbone=small_backbone, seed=0, place=asked)
    record = evaluate(cell)
    assert record.protocol["name"] == "lorac-2021/1"
    assert set(record.details["held_out_top1"]) == {"0.1", "1"}
    assert record.details["training"]["iterations"] == 4
    assert record.details["num_labelled"] == 60


def test_every_key_of_few_labels_is_a_task() -> None:
    assert all(isinstance(TASKS[key], SemiSupervised) for key in FEW_LABELS)
