"""A kept classifier, and labels counted as its classes are."""

from pathlib import Path

import pytest
import torch

from transfer.frozen.classifier import (
    IMAGES_PER_PART,
    Heads,
    classifier_file,
    classifier_scores,
    labels_among,
    load_classifier,
    save_classifier,
)

HEAD = Heads(torch.arange(12.0).view(1, 3, 4), torch.tensor([[0.0, 1.0, 2.0]]))


def test_more_images_than_one_part_holds_are_scored_in_their_order() -> None:
    features = (torch.arange(4.0 * (IMAGES_PER_PART + 9)) % 61).view(-1, 4)
    expected = features @ HEAD.weight[0].T + HEAD.bias[0]  # whole numbers: exact
    assert torch.equal(classifier_scores(HEAD, features), expected)


def test_a_torn_or_absent_file_is_none(tmp_path: Path) -> None:
    file = classifier_file(tmp_path, "0" * 16)
    assert load_classifier(file) is None
    file = classifier_file(tmp_path, save_classifier(tmp_path, HEAD))
    file.write_bytes(file.read_bytes()[:-1])
    assert load_classifier(file) is None


def test_classifiers_of_one_folder_are_never_taken_for_each_other(tmp_path: Path) -> None:
    other = Heads(HEAD.weight, HEAD.bias + 1)
    names = [save_classifier(tmp_path, head) for head in (HEAD, other)]
    files = [classifier_file(tmp_path, name) for name in names]
    for file, head in zip(files, (HEAD, other), strict=True):
        found = load_classifier(file)
        assert found is not None
        assert torch.equal(found.bias, head.bias)
    files[1].replace(files[0])
    assert load_classifier(files[0]) is None


def test_labels_are_counted_by_name() -> None:
    labels = torch.tensor([0, 1, 1, 0])
    assert labels_among(labels, ("n3", "n1"), ("n1", "n2", "n3")).tolist() == [2, 0, 0, 2]


def test_a_class_that_the_classifier_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="of 2 classes knows no n9"):
        labels_among(torch.tensor([0]), ("n9", "n1"), ("n1", "n2"))
