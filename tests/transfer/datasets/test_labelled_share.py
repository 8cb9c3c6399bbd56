"""Lists are read as SimCLR writes them; draws are even, nested and the same everywhere."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transfer.datasets.catalog import DATASETS, open_split
from transfer.datasets.images import DataError, image_files
from transfer.datasets.labelled_share import drawn_share

NAMES = [f"train/{i:03d}.jpg" for i in range(60)]
POOL = image_files(Path("data"), NAMES, [i % 3 for i in range(60)], ["a", "b", "c"])


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


def test_a_list_of_other_classes_is_told(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("in1k_1pct")
    (data / "imagenet_subsets" / "1percent.txt").write_text("n99999999_1.JPEG\n")
    with pytest.raises(DataError, match="1 classes, first n99999999"):
        open_split("in1k_1pct", data, "trainval")


def test_a_draw_takes_the_share_of_the_mean_class_from_each_class() -> None:
    drawn = drawn_share(POOL, 0.25)
    assert np.bincount(drawn.labels.numpy()).tolist() == [5, 5, 5]


def test_the_labels_of_one_percent_are_among_those_of_ten() -> None:
    few, more, all_of_them = (drawn_share(POOL, share) for share in (0.1, 0.5, 1.0))
    names = [{part.name(i) for i in range(len(part))} for part in (few, more, all_of_them)]
    assert names[0] < names[1] < names[2]
    assert len(names[2]) == 60


def test_the_draw_never_changes() -> None:
    drawn = drawn_share(POOL, 0.1)
    assert [drawn.name(i)[6:9] for i in range(len(drawn))] == FIXED


FIXED = ["002", "007", "016", "030", "033", "035"]


def test_a_class_with_too_few_images_is_named() -> None:
    short = POOL.subset([0, 3, 6, 1, *range(2, 60, 3)])
    with pytest.raises(DataError, match="class b has 1 images"):
        drawn_share(short, 0.5)
