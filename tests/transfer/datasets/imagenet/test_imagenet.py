"""ImageNet's lists, its corrupted images, and ObjectNet's classes."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from tests.transfer.datasets.conftest import CopyOf
from transfer.datasets.catalog import DATASETS, dataset_info, expected_sizes, open_split
from transfer.datasets.check import check
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes, mark_small
from transfer.datasets.imagenet.imagenet import imagenet100_wnids
from transfer.datasets.imagenet.imagenet_c import (
    EXTRA_KINDS,
    KINDS,
    MAIN_KINDS,
    kind_and_severity,
)
from transfer.datasets.imagenet.objectnet import WNIDS, read_objectnet13


def test_a_list_names_the_images_and_their_classes(small_data: Path) -> None:
    lines = (small_data / "imagenet_subsets" / "1percent.txt").read_text().split()
    images = open_split("in1k_1pct", small_data, "trainval")
    names = [Path(images.name(i)).name for i in range(len(images))]
    assert sorted(names) == sorted(lines)
    assert [images.class_names[label] for label in images.labels] == [n[:9] for n in names]
    assert images.class_names == open_split("in1k", small_data, "trainval").class_names
    whole = open_split("in1k", small_data, "test").fingerprint
    assert open_split("in1k_1pct", small_data, "test").fingerprint == whole
    assert open_split("in1k_10pct", small_data, "test").fingerprint == whole


def test_each_list_is_a_set_of_its_own(copy_of: CopyOf) -> None:
    data = copy_of("in1k_1pct")
    file = data / "imagenet_subsets" / "1percent.txt"
    file.write_text("n99999999_1.JPEG\n")
    with pytest.raises(DataError, match=r"1percent\.txt: \['n99999999'\] are not among"):
        open_split("in1k_1pct", data, "trainval")
    file.unlink()
    assert DATASETS["in1k_10pct"].exists_in(data)
    assert not DATASETS["in1k_1pct"].exists_in(data)
    with pytest.raises(DataError, match=r"1percent\.txt does not exist"):
        open_split("in1k_1pct", data, "test")


def test_every_class_comes_under_every_corruption_at_every_severity(small_data: Path) -> None:
    assert (len(set(MAIN_KINDS)), len(set(KINDS))) == (15, 19)
    images = open_split("imagenet_c100", small_data, "test")
    names = [images.name(i) for i in range(len(images))]
    classes = [images.class_names[label] for label in images.labels]
    cells = Counter((*kind_and_severity(n), c) for n, c in zip(names, classes, strict=True))
    assert len(cells) == 19 * 5 * len(images.class_names)
    assert set(cells.values()) == {1}
    assert classes == [name.split("/")[3] for name in names]


def test_what_is_missing_of_the_corruptions_is_named(copy_of: CopyOf) -> None:
    data = copy_of("imagenet_c100")
    info = dataset_info("imagenet_c100")
    assert info.departures(data) == []
    next((data / "imagenet-c" / "fog" / "3").rglob("*.JPEG")).unlink()
    problems = check("imagenet_c100", data, decode=False).problems
    assert "test: 759 images found, 760 expected" in problems
    shutil.rmtree(data / "imagenet-c" / "spatter")
    with pytest.raises(DataError, match=r"1 of 19 corruptions are missing.*spatter"):
        open_split("imagenet_c100", data, "test")
    for kind in set(EXTRA_KINDS) - {"spatter"}:
        shutil.rmtree(data / "imagenet-c" / kind)
    # without all of extra.tar, the set is whole and says what it lacks
    mark_small(data, "imagenet_c100", Sizes(classes=8, counts={"test": 15 * 5 * 8 - 1}))
    assert check("imagenet_c100", data, decode=False).ok
    assert "no all19_top1" in info.departures(data)[0]
    (data / SMALL_DATA).unlink()
    assert expected_sizes("imagenet_c100", data).counts == {"test": 15 * 5 * 5_000}


def test_folders_find_their_class_by_label_whatever_they_are_called(tmp_path: Path) -> None:
    assert len(set(WNIDS.values()) & set(imagenet100_wnids())) == 13
    folders = {"zz_chair": "Chair", "aa_bowl": "Mixing / Salad Bowl", "other": "Air freshener"}
    root = tmp_path / "objectnet-1.0"
    (root / "mappings").mkdir(parents=True)
    (root / "mappings" / "folder_to_objectnet_label.json").write_text(json.dumps(folders))
    for name in folders:
        (root / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(root / "images" / name / "0.png")
    images = read_objectnet13(tmp_path, "test", Sizes(classes=2, counts={"test": 2}))
    result = {images.name(i).split("/")[2]: images.class_names[images[i][1]] for i in range(2)}
    assert result == {"aa_bowl": "n03775546", "zz_chair": "n04099969"}


def test_a_half_unpacked_objectnet_is_known_by_its_total(copy_of: CopyOf) -> None:
    data = copy_of("objectnet13")
    for file in (data / "objectnet-1.0" / "images" / "jeans").iterdir():
        file.unlink()
    report = check("objectnet13", data, decode=False)
    assert "test: class n03594734 is in no image" in report.problems
    (data / SMALL_DATA).unlink()
    report = check("objectnet13", data, decode=False)
    assert (
        "37 images in 5 class folders, but about 50,000 in 313 are published" in report.problems[0]
    )
