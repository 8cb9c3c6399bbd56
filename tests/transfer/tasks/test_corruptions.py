"""Scores on corrupted images and other viewpoints, and worst mistakes."""

from pathlib import Path

import numpy as np
import pytest
import torch

import transfer.tasks.robustness
from transfer.datasets.folders import Folders
from transfer.datasets.imagenet.imagenet_c import EXTRA_KINDS, GROUPS, MAIN_KINDS
from transfer.datasets.imagenet.objectnet import WNIDS, with_readable_names
from transfer.datasets.images import ImageArrays, Images, encode_names
from transfer.frozen.classifier import Heads
from transfer.frozen.feature_cache import Features, Predictions
from transfer.tasks.robustness import ClassifierTest, CorruptionEval, ObjectNetEval, accuracies
from transfer.tasks.task import NamedTask, TaskError


def corrupted(right: dict[tuple[str, int], int]) -> Predictions:
    """Return predictions for four images per corruption and severity."""
    answers = (torch.arange(4) < torch.tensor([*right.values()])[:, None]).long().flatten()
    corruptions = tuple(corruption for corruption in right for _ in range(4))
    scores = torch.nn.functional.one_hot(answers, 2).float()
    labels = torch.ones_like(answers)
    return Predictions(scores, labels, {"top1": accuracies(scores, labels, corruptions)})


def test_corruption_groups_are_means_over_severities() -> None:
    """Accuracies: noise 100 %, blur 75, weather 50, digital 25, others 0.

    From severity 4 on, all are 0.
    """
    counts = dict(zip(GROUPS, (4, 3, 2, 1), strict=True))
    per_kind = {kind: counts[group] for group, kinds in GROUPS.items() for kind in kinds}
    per_kind |= dict.fromkeys(EXTRA_KINDS, 0)
    predictions = corrupted(
        {(k, s): n if s <= 3 else 0 for k, n in per_kind.items() for s in (1, 2, 3, 4, 5)}
    )
    result = CorruptionEval().metrics(predictions)
    groups = [result[f"{group}_top1"] for group in GROUPS]
    assert groups == pytest.approx([60.0, 45.0, 30.0, 15.0])
    fifteen = 3 * 60 + 4 * 45 + 4 * 30 + 4 * 15
    assert result["all_top1"] == pytest.approx(fifteen / 15)
    assert result["all19_top1"] == pytest.approx(fifteen / 19)
    at_three = 3 * 100 + 4 * 75 + 4 * 50 + 4 * 25
    assert result["sev3plus_top1"] == pytest.approx(at_three / 15 / 3)
    assert result["sev3plus19_top1"] == pytest.approx(at_three / 19 / 3)
    assert predictions.details["top1"]["fog"] == {1: 50.0, 2: 50.0, 3: 50.0, 4: 0.0, 5: 0.0}
    result = CorruptionEval().metrics(corrupted({(k, s): 2 for k in MAIN_KINDS for s in (1, 3)}))
    assert result["all_top1"] == 50.0
    assert not [name for name in result if "19" in name]


def test_the_size_of_the_images_is_no_number_of_the_protocol() -> None:
    with pytest.raises(TaskError, match="has no resize_px"):
        NamedTask("imagenet_c100_eval", CorruptionEval()).ablation("large", resize_px=256)


def test_numbers_by_class_are_of_all_corruptions_and_say_so() -> None:
    classes, files = ("n1", "n2"), ("set/fog/1/n1/a", "set/snow/5/n1/a", "set/snow/5/n2/b")
    head = Heads(torch.eye(2)[None], torch.zeros(1, 2))
    test = ClassifierTest(
        head, classes, Features(torch.eye(2)[[0, 1, 1]], torch.tensor([0, 0, 1])), files
    )
    task = CorruptionEval()
    details = task.details(task.run(test, Folders(Path(), Path(), Path()), seed=0))
    assert details["accuracy_per_class"] == {"n1": 50.0, "n2": 100.0}
    assert details["classes_counted_over"] == "all corruptions and severities"


def test_worst_image_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    classes = ("n0", WNIDS["Chair"], WNIDS["Bench"])
    truth = torch.tensor([1, 2, 1, 2])  # ObjectNet has the last two
    source = ImageArrays(np.zeros((4, 2, 2, 3), np.uint8), encode_names([*"abcd"]))
    splits = {
        "objectnet13": Images(source, truth.numpy() - 1, classes[1:]),
        "in100": Images(source, truth.numpy(), classes),
    }
    monkeypatch.setattr(transfer.tasks.robustness, "open_images", lambda key, *_: splits[key])
    features = torch.tensor([[0.0, 1, 0], [0, 0.4, 0.2], [0.9, 0, 0], [0, 0, 1]])
    head = Heads(torch.eye(3)[None], torch.zeros(1, 3))
    test = ClassifierTest(head, with_readable_names(classes), Features(features, truth), files=())
    folders, task = Folders(Path(), Path(), Path()), ObjectNetEval()
    predictions = task.run(test, folders, seed=0)
    chair, bench = (f"{arg} ({WNIDS[arg]})" for arg in ("Chair", "Bench"))
    assert predictions.details["accuracy_per_class"] == {chair: 50.0, bench: 50.0}
    tiles = [(tile.name, tile.caption) for tile in task.gallery(predictions, folders)]
    assert tiles == [("c", f"{chair} taken for n0"), ("b", f"{bench} taken for {chair}")]
