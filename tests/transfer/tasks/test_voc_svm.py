"""VOC 2007 SVMs: protocol, difficult images, engines, and known answers."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

from tests.transfer.tasks.voc_features import synthetic_voc
from transfer import Encoder
from transfer.datasets.expected import DataError, Sizes, mark_small
from transfer.datasets.folders import Folders
from transfer.datasets.images import ImageArrays, Images
from transfer.frozen.feature_cache import Features, Predictions
from transfer.frozen.transforms import EvalTransform
from transfer.metrics import average_precision
from transfer.tasks.voc_svm import VOCSVM, SVMData, unit_length

QUICK = VOCSVM(costs=(0.01, 0.1, 1.0, 10.0), min_classes=1)


def folders(work: Path) -> Folders:
    return Folders(Path("no data"), Path("no cache"), work)


def small() -> SVMData:
    return synthetic_voc(240, dim=32, num_classes=8)


def solved_toy() -> SVMData:
    """Three classes, each with its own feature.

    A fourth label column is absent everywhere.
    """
    labels = torch.full((36, 4), -1, dtype=torch.int8)
    labels[torch.arange(36), torch.arange(36) % 3] = 1
    features = torch.cat([(labels[:, :3] == 1).float(), torch.full((36, 1), 0.2)], dim=1)
    split = Features(features, labels)
    return QUICK.select_classes(split, split, ("a", "b", "c", "nowhere"))


def test_a_separable_set_is_solved_exactly_by_the_smallest_cost_which_is_flagged(
    tmp_path: Path,
) -> None:
    predictions = QUICK.run(solved_toy(), folders(tmp_path), seed=0)
    assert QUICK.metrics(predictions) == {"mAP": 100}
    details = QUICK.details(predictions)
    classes = cast(dict[str, dict[str, object]], details["classes"])
    assert {name: row["cost"] for name, row in classes.items()} == dict.fromkeys("abc", 0.01)
    assert details["classes_at_grid_edge"] == ["a", "b", "c"]
    assert details["classes_left_out"] == ["nowhere"]


def test_all_classes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    QUICK.run(solved_toy(), folders(tmp_path), seed=0)
    lines = [line[10:] for line in capsys.readouterr().err.splitlines() if " C " in line]
    assert lines == ["svm         3 classes  C 0.01 to 0.01  mean cross-validated AP 100.00"]


def shown(*positives: int) -> Images:
    """Ten images without pixels.

    So many of them show class "a", "b", ..., drawn from the first.
    """
    labels = np.where(np.arange(10)[:, None] < np.array(positives), 1, -1).astype(np.int8)
    pixels = np.zeros((10, 1, 1, 3), dtype=np.uint8)
    return Images(ImageArrays(pixels, np.array([b""] * 10)), labels, "abcdefgh"[: len(positives)])


def test_too_few_classes_with_enough_positives_are_named() -> None:
    task = VOCSVM(min_classes=3)
    assert task.too_few_labels({"trainval": shown(2, 8, 4), "test": shown(1, 1, 9)}) == ""
    reason = task.too_few_labels({"trainval": shown(1, 8, 9), "test": shown(1, 0, 1)})
    assert "expected 3 classes to score, but voc07 has 0" in reason
    assert reason.endswith(": a, b, c")


def test_the_short_schedule_scores_the_classes_that_there_are() -> None:
    some = {"trainval": shown(5, 1), "test": shown(5, 1)}
    assert "--schedule short" in VOCSVM().too_few_labels(some)
    assert VOCSVM().at_schedule("short").too_few_labels(some) == ""
    none = {"trainval": shown(5, 5), "test": shown(0, 0)}
    assert "has 0" in VOCSVM().at_schedule("short").too_few_labels(none)


def test_an_excerpt_with_too_few_classes_is_known_to_the_plan(tmp_path: Path) -> None:
    mark_small(tmp_path, "voc07", Sizes(classes=19, counts={"trainval": 90, "test": 90}))
    assert "voc07 has 19" in VOCSVM().too_few_images(tmp_path)
    assert VOCSVM().at_schedule("short").too_few_images(tmp_path) == ""


def test_too_few_positives_are_noticed_before_features_are_extracted(
    small_backbone: Encoder, small_data: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="expected 21"):
        VOCSVM(min_classes=21).prepare(small_backbone, Folders(small_data, tmp_path, tmp_path))
    assert not list(tmp_path.iterdir())


def test_difficult_images_are_negatives_in_training(tmp_path: Path) -> None:
    data = small()
    assert bool((data.train.labels == 0).any())
    relabeled = data.train.labels.where(data.train.labels != 0, -1)
    as_negative = replace(data, train=Features(data.train.features, relabeled))
    left = QUICK.run(data, folders(tmp_path / "left"), seed=0)
    right = QUICK.run(as_negative, folders(tmp_path / "right"), seed=0)
    assert torch.equal(left.scores, right.scores)


def test_difficult_images_are_ignored_on_test() -> None:
    scores = torch.tensor([[0.9], [0.8], [0.7], [0.1]])
    labels = torch.tensor([[0], [1], [-1], [1]], dtype=torch.int8)
    stored = torch.tensor([True, False, True])
    for task in (QUICK, replace(QUICK, points="11")):
        expected = average_precision(scores[1:, 0], stored, points=task.points)
        assert task.metrics(Predictions(scores, labels)) == {"mAP": pytest.approx(expected)}


def test_features_are_divided_by_their_length_and_an_offset() -> None:
    scaled = unit_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 1e-5)
    expected = torch.tensor([[3 / 5.00001, 4 / 5.00001], [0.0, 0.0]])
    torch.testing.assert_close(scaled, expected)


def test_images_are_squashed_by_way_of_256_to_224() -> None:
    squash = EvalTransform(resize_px=256, crop_px=224, squash=True)
    assert VOCSVM().extracted() == [("trainval", squash), ("test", squash)]


def test_images_have_the_very_size_of_an_encoder() -> None:
    grid = Encoder.from_module(
        nn.Sequential(nn.Conv2d(3, 8, 14, 14), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        size_px=518,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    )
    for schedule in ("paper", "smoke"):
        assert VOCSVM().at_schedule(schedule).for_backbone(grid).crop_px == 518
