"""Semi-supervised tasks report means over trials, classes and worst images."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from pretrain.running.errors import NotFiniteError
from tests.transfer.tasks.labeled_images import labeled
from transfer.datasets.catalog import open_split
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.frozen.feature_cache import Features, TrainAndTest
from transfer.metrics import top1
from transfer.tasks import TASKS
from transfer.tasks.few_shot import FewShot, LowShotKNN, TrialScores, first_draw
from transfer.tasks.knn import KNN
from transfer.tasks.neighbors import NearestImages
from transfer.tasks.task import CenterCrops, NamedTask, occurring_classes


def test_a_mean_over_trials_and_its_interval_have_one_name() -> None:
    labels = torch.arange(4)
    right = one_hot(labels, 4).float()
    half = torch.cat([right[:2], right[:2]])
    task = FewShot(dataset="flowers", shots=(5,))
    predictions = TrialScores({5: torch.stack([right, half])}, labels, tuple("abcd"))
    assert task.metrics(predictions) == {"acc_5shot": 75.0}
    details = task.details(predictions)
    assert details["trials"] == {"acc_5shot": [100.0, 50.0]}
    assert details["interval95"] == {"acc_5shot": pytest.approx(1.96 * stdev([100, 50]) / 2**0.5)}


def test_accuracy_by_class_is_the_mean_over_the_trials_of_the_fewest_shots() -> None:
    labels = torch.arange(12) % 3
    scores = torch.rand(4, 12, 3, generator=torch.Generator().manual_seed(0))
    right = {10: one_hot(labels, 3).expand(4, 12, 3), 5: scores}
    predictions = TrialScores(right, labels, ("cat", "dog", "fox"))
    result: dict[str, Any] = FewShot(dataset="flowers").details(predictions)
    for label, name in enumerate(("cat", "dog", "fox")):
        trials = [top1(trial[labels == label], labels[labels == label]) for trial in scores]
        assert result["accuracy_per_class"][name] == pytest.approx(fmean(trials), abs=0.005)
    confused = sum(pair["images"] for pair in result["most_confused"])
    assert confused == int((scores.argmax(dim=2) != labels).sum())
    assert {pair["of"] for pair in result["most_confused"]} == {4 * 4}
    assert result["classes_counted_over"] == "4 trials of 5 images per class"


def test_pictures_show_the_images_that_the_smallest_sets_are_most_wrong_about(
    small_data: Path, tmp_path: Path
) -> None:
    folders = Folders(small_data, tmp_path, tmp_path)
    images = open_split("cifar10", small_data, "test")
    generator = torch.Generator().manual_seed(0)
    train = Features(torch.randn(120, 4, generator=generator), torch.arange(120) % 6)
    test = Features(torch.randn(len(images), 4, generator=generator), images.labels)
    prepared = TrainAndTest(train, test, images.class_names)
    shots: FewShot | LowShotKNN = FewShot(dataset="cifar10", shots=(2,), trials=2, iterations=3)
    banks = LowShotKNN(dataset="cifar10", percents=(10, 5), draws=3, num_neighbors=4)
    for task, size in ((shots, 2), (banks, 5)):
        result = task.run(prepared, folders, seed=0)
        details: dict[str, Any] = task.details(result)
        assert list(details["accuracy_per_class"]) == list(images.class_names)
        scores = result.scores[size]
        votes = scores / scores.sum(dim=2, keepdim=True)
        shares = (scores.softmax(dim=2) if task is shots else votes).mean(dim=0)
        ours = shares.gather(1, images.labels[:, None])[:, 0]
        worst = int((shares.max(dim=1).values - ours).argmax())
        assert task.gallery(result, folders)[0].name == images.name(worst)


def test_a_single_classifier_that_diverges_leaves_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights = torch.stack([torch.ones(3, 4), torch.full((3, 4), torch.nan)])
    trained = Mock(return_value=(weights, torch.zeros(2, 3)))
    monkeypatch.setattr("transfer.frozen.few_shot_heads.train_together", trained)
    features = Features(torch.ones(6, 4), torch.arange(6) % 3)
    prepared = TrainAndTest(features, features, ("cat", "dog", "fox"))
    with pytest.raises(NotFiniteError):
        FewShot(dataset="cifar10", shots=(1,), trials=2).run(prepared, Mock(), seed=0)


@pytest.mark.parametrize("kind", [KNN, NearestImages])
def test_more_neighbors_than_images_are_refused(
    kind: type[KNN | NearestImages], small_data: Path
) -> None:
    most, more = (kind(dataset="cifar10", num_neighbors=number) for number in (192, 193))
    train = {"trainval": labeled(100, 92)}
    assert most.too_few_images(small_data) == most.too_few_labels(train) == ""
    assert "has 192 training images" in more.too_few_images(small_data)
    assert more.too_few_labels(train) == more.too_few_images(small_data)


def test_a_class_with_fewer_images_than_shots_is_named() -> None:
    task = FewShot(dataset="cifar10", shots=(2, 5))
    pools = {"trainval": labeled(5, 9, 5), "test": labeled(1, 1, 1)}
    assert task.too_few_labels(pools) == ""
    reason = task.too_few_labels(pools | {"trainval": labeled(9, 4, 0)})
    assert "cifar10, trainval: class 'c' has 0 of the 5 images" in reason
    fewer = NamedTask("cifar10_fewshot", task).ablation("fewer", shots=(4,)).task
    assert fewer.too_few_labels(pools | {"trainval": labeled(9, 4, 4)}) == ""


def test_a_class_with_too_few_images_for_a_bank_is_named() -> None:
    task = LowShotKNN(dataset="cifar10", percents=(1, 10), num_neighbors=3)
    pools = {"trainval": labeled(40, 30, 20), "test": labeled(1, 1, 1)}
    assert task.too_few_labels(pools) == ""
    reason = task.too_few_labels(pools | {"trainval": labeled(50, 40, 2)})
    assert "class 'c' has 2 of the 3 images" in reason
    more_neighbors = replace(task, num_neighbors=4)
    assert "4 neighbors are needed" in more_neighbors.too_few_labels(pools)


@pytest.mark.parametrize(
    "task",
    [
        FewShot(dataset="cifar10", shots=(33,), crop_px=32),
        LowShotKNN(dataset="cifar10", percents=(100,), num_neighbors=193),
        KNN(dataset="cifar10", num_neighbors=193),
        NearestImages(dataset="cifar10", num_neighbors=193),
    ],
)
def test_too_few_labels_are_noticed_before_features_are_extracted(
    task: CenterCrops, small_backbone: Encoder, small_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="cifar10"):
        task.prepare(small_backbone, Folders(small_data, tmp_path, tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_class_without_training_images_has_a_column_of_scores() -> None:
    names = ("a", "b", "c", "d")
    assert occurring_classes(names, np.array([0, 1]), np.array([0, 2])) == ("a", "b", "c")


def test_no_two_runs_have_the_same_draws() -> None:
    seeds = [first_draw(seed) % 2**32 for seed in (0, 1, 4095, 4096, 4097, 2**32 - 1)]
    assert seeds[:3] == [0, 1 << 20, 4095 << 20]
    assert min(abs(a - b) for a in seeds for b in seeds if a != b) > 2**18
    assert len(set(seeds)) == 6


def test_an_ablation_has_the_metric_of_its_fewest_labels() -> None:
    shots = NamedTask("cifar10_fewshot", TASKS["cifar10_fewshot"]).ablation("one", shots=(20, 1))
    banks = NamedTask("cifar10_lowshot_knn", TASKS["cifar10_lowshot_knn"])
    assert shots.task.primary_metric == "acc_1shot"
    assert banks.task.primary_metric == "top1_1pct"
    assert banks.ablation("five", percents=(5,)).task.primary_metric == "top1_5pct"


def test_few_neighbors_stay_few_at_smoke() -> None:
    knn = KNN(dataset="cifar10", num_neighbors=1)
    assert knn.at_schedule("smoke").num_neighbors == 1
    assert KNN(dataset="cifar10").at_schedule("smoke").num_neighbors == 20
