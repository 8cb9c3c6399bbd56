"""Stored classifiers, counted labels, per-class accuracy and confused pairs."""

from pathlib import Path

import pytest
import torch

from transfer.frozen.classifier import (
    Heads,
    class_results,
    classifier_file,
    labels_among,
    load_classifier,
    save_classifier,
)
from transfer.metrics import mean_per_class

HEAD = Heads(torch.arange(12.0).view(1, 3, 4), torch.tensor([[0.0, 1.0, 2.0]]))


def test_classifiers_share_a_folder_and_torn_ones_are_not_read(tmp_path: Path) -> None:
    assert load_classifier(classifier_file(tmp_path, "0" * 16)) is None
    second = Heads(HEAD.weight, HEAD.bias + 1)
    files = [classifier_file(tmp_path, save_classifier(tmp_path, head)) for head in (HEAD, second)]
    for file, head in zip(files, (HEAD, second), strict=True):
        result = load_classifier(file)
        assert result is not None
        assert torch.equal(result.bias, head.bias)
    file = classifier_file(tmp_path, save_classifier(tmp_path, HEAD))
    file.write_bytes(file.read_bytes()[:-1])
    assert load_classifier(file) is None


def test_missing_class_is_named() -> None:
    labels = torch.tensor([0, 1, 1, 0])
    assert labels_among(labels, ("n3", "n1"), ("n1", "n2", "n3")).tolist() == [2, 0, 0, 2]
    with pytest.raises(ValueError, match="n9"):
        labels_among(torch.tensor([0]), ("n9", "n1"), ("n1", "n2"))


def test_pairs_are_counted_from_the_label_to_the_prediction() -> None:
    scores = torch.eye(3)[[0, 1, 1, 1, 2, 0]]
    labels = torch.tensor([0, 0, 0, 1, 2, 2])
    result = class_results(scores, labels, ("cat", "dog", "fox"))
    assert result["most_confused"] == [
        {"class": "cat", "taken_for": "dog", "images": 2, "of": 3},
        {"class": "fox", "taken_for": "cat", "images": 1, "of": 2},
    ]
    accuracies = result["accuracy_per_class"]
    assert sum(accuracies.values()) / 3 == pytest.approx(mean_per_class(scores, labels), abs=0.01)
    missing = class_results(scores[:3], labels[:3], ("cat", "dog", "fox"))
    assert list(missing["accuracy_per_class"]) == ["cat"]


def test_a_kept_classifier_is_stored_without_the_other_rates(tmp_path: Path) -> None:
    heads = torch.zeros(50, 30, 40)
    name = save_classifier(tmp_path, Heads(heads[7:8], torch.zeros(1, 30)))
    assert classifier_file(tmp_path, name).stat().st_size < heads.nbytes / 10
