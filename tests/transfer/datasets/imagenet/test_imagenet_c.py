"""ImageNet-C: every class under every corruption, with and without the four extra ones."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from transfer.datasets.catalog import dataset_info, expected_sizes, open_split
from transfer.datasets.check import check
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes, mark_small
from transfer.datasets.imagenet.imagenet_c import (
    EXTRA_KINDS,
    GROUPS,
    KINDS,
    MAIN_KINDS,
    kind_and_severity,
)


def test_there_are_fifteen_corruptions_in_four_groups_and_four_more() -> None:
    assert [len(kinds) for kinds in GROUPS.values()] == [3, 4, 4, 4]
    assert (len(set(MAIN_KINDS)), len(set(KINDS))) == (15, 19)


def test_every_class_comes_under_every_corruption_at_every_severity(small_data: Path) -> None:
    images = open_split("imagenet_c100", small_data, "test")
    names = [images.name(i) for i in range(len(images))]
    cells = Counter((*kind_and_severity(n), images.class_names[images.labels[i]])
                    for i, n in enumerate(names))  # fmt: skip
    assert len(cells) == 19 * 5 * len(images.class_names)
    assert set(cells.values()) == {1}
    assert all(n.split("/")[3] == images.class_names[images.labels[i]] for i, n in enumerate(names))


def test_a_missing_corruption_is_named(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("imagenet_c100")
    shutil.rmtree(data / "imagenet-c" / "spatter")
    with pytest.raises(DataError, match=r"1 of 19 corruptions are missing.*spatter"):
        open_split("imagenet_c100", data, "test")


def test_imagenet_c_without_extra_tar_is_whole_and_says_what_it_lacks(
    copy_of: Callable[[str], Path],
) -> None:
    data = copy_of("imagenet_c100")
    assert dataset_info("imagenet_c100").departures(data) == []
    for kind in EXTRA_KINDS:
        shutil.rmtree(data / "imagenet-c" / kind)
    mark_small(data, "imagenet_c100", Sizes(classes=8, counts={"test": 15 * 5 * 8}))
    assert check("imagenet_c100", data, decode=False).ok
    assert "no all19_top1" in dataset_info("imagenet_c100").departures(data)[0]
    (data / SMALL_DATA).unlink()
    assert expected_sizes("imagenet_c100", data).counts == {"test": 15 * 5 * 5_000}


def test_a_missing_image_of_a_corruption_is_counted(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("imagenet_c100")
    next((data / "imagenet-c" / "fog" / "3").rglob("*.JPEG")).unlink()
    report = check("imagenet_c100", data, decode=False)
    assert not report.ok
    assert "test: 759 images found, 760 expected" in report.problems
