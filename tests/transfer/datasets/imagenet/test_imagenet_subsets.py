"""The labeled 1 % and 10 % of ImageNet: lists are read the way SimCLR writes them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from transfer.datasets.catalog import DATASETS, open_split
from transfer.datasets.expected import DataError


def test_a_list_names_the_images_and_their_classes(small_data: Path) -> None:
    lines = (small_data / "imagenet_subsets" / "1percent.txt").read_text().split()
    images = open_split("in1k_1pct", small_data, "trainval")
    names = [Path(images.name(i)).name for i in range(len(images))]
    assert sorted(names) == sorted(lines)
    assert [images.class_names[label] for label in images.labels] == [n[:9] for n in names]
    whole = open_split("in1k", small_data, "trainval")
    assert images.class_names == whole.class_names


def test_both_lists_are_tested_on_all_val_images(small_data: Path) -> None:
    whole = open_split("in1k", small_data, "test").fingerprint
    assert open_split("in1k_1pct", small_data, "test").fingerprint == whole
    assert open_split("in1k_10pct", small_data, "test").fingerprint == whole


def test_each_list_is_a_set_of_its_own(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("in1k_1pct")
    (data / "imagenet_subsets" / "1percent.txt").unlink()
    assert DATASETS["in1k_10pct"].is_there(data)
    assert not DATASETS["in1k_1pct"].is_there(data)
    with pytest.raises(DataError, match=r"1percent\.txt is not there"):
        open_split("in1k_1pct", data, "test")


def test_a_list_of_other_classes_is_an_error(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("in1k_1pct")
    (data / "imagenet_subsets" / "1percent.txt").write_text("n99999999_1.JPEG\n")
    with pytest.raises(DataError, match="1 classes, first n99999999"):
        open_split("in1k_1pct", data, "trainval")
