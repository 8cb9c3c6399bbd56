"""Sets that are only tested on: which classes, corruptions and borders their readers find."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from transfer.datasets.catalog import dataset_info, expected_sizes, open_split
from transfer.datasets.check import check
from transfer.datasets.expected import SMALL_DATA, Sizes, mark_small
from transfer.datasets.generate import generate
from transfer.datasets.imagenet import imagenet100_wnids
from transfer.datasets.imagenet_c import EXTRA_KINDS, GROUPS, KINDS, MAIN_KINDS, kind_and_severity
from transfer.datasets.images import DataError
from transfer.datasets.objectnet import WNIDS, read_objectnet13


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


def told(key: str, data: Path) -> list[str]:
    return list(dataset_info(key).told_of(data))


def test_imagenet_c_without_extra_tar_is_whole_and_says_what_it_lacks(
    copy_of: Callable[[str], Path],
) -> None:
    data = copy_of("imagenet_c100")
    assert told("imagenet_c100", data) == []
    for kind in EXTRA_KINDS:
        shutil.rmtree(data / "imagenet-c" / kind)
    mark_small(data, "imagenet_c100", Sizes(classes=8, counts={"test": 15 * 5 * 8}))
    assert check("imagenet_c100", data, decode=False).ok
    assert "no all19_top1" in told("imagenet_c100", data)[0]
    (data / SMALL_DATA).unlink()
    assert expected_sizes("imagenet_c100", data).counts == {"test": 15 * 5 * 5_000}


def test_made_corruptions_name_their_maker_in_every_record(small_data: Path) -> None:
    (line,) = told("imagenet_c100_made", small_data)
    assert line.startswith("corruptions made by generate-data 1, 15 kinds, no speckle_noise,")
    assert dataset_info("imagenet_c100_made").counts == {"test": 18 * 5 * 5_000}


def test_a_missing_image_of_a_corruption_is_counted(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("imagenet_c100")
    next((data / "imagenet-c" / "fog" / "3").rglob("*.JPEG")).unlink()
    report = check("imagenet_c100", data, decode=False)
    assert not report.ok
    assert "test: 759 images found, 760 expected" in report.problems


def test_the_thirteen_classes_are_on_the_list_of_imagenet_100() -> None:
    assert len(set(WNIDS.values())) == 13
    assert set(WNIDS.values()) <= set(imagenet100_wnids())


def test_folders_find_their_class_by_label_whatever_they_are_called(tmp_path: Path) -> None:
    folders = {"zz_chair": "Chair", "aa_bowl": "Mixing / Salad Bowl", "other": "Air freshener"}
    root = tmp_path / "objectnet-1.0"
    (root / "mappings").mkdir(parents=True)
    (root / "mappings" / "folder_to_objectnet_label.json").write_text(json.dumps(folders))
    for name in folders:
        (root / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(root / "images" / name / "0.png")
    images = read_objectnet13(tmp_path, "test", Sizes(classes=2, counts={"test": 2}))
    found = {images.name(i).split("/")[2]: images.class_names[images[i][1]] for i in range(2)}
    assert found == {"aa_bowl": "n03775546", "zz_chair": "n04099969"}


def test_generated_photographs_have_the_red_border(small_data: Path) -> None:
    image, _ = open_split("objectnet13", small_data, "test")[0]
    assert {image.getpixel((x, 1)) for x in range(image.width)} == {(255, 0, 0)}
    assert image.getpixel((2, 2)) != (255, 0, 0)


def test_a_half_unpacked_objectnet_is_known_by_its_total(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("objectnet13")
    (data / SMALL_DATA).unlink()
    report = check("objectnet13", data, decode=False)
    assert not report.ok
    assert "49 images in 5 class folders, about 50,000 in 313 are published" in report.problems[0]


def test_a_class_of_objectnet_without_images_is_named(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("objectnet13")
    for file in (data / "objectnet-1.0" / "images" / "jeans").iterdir():
        file.unlink()
    report = check("objectnet13", data, decode=False)
    assert "test: class n03594734 has no image" in report.problems


def test_small_imagenet_100_has_several_of_objectnets_classes(tmp_path: Path) -> None:
    generate(tmp_path, keys=["in1k", "objectnet13"])
    of_100 = open_split("in100", tmp_path, "test").class_names
    images = open_split("objectnet13", tmp_path, "test")
    assert len(set(images.labels.tolist())) == len(images.class_names) == 4
    assert set(images.class_names) < set(of_100)
    folders = sorted(folder.name for folder in (tmp_path / "objectnet-1.0" / "images").iterdir())
    by_wnid = [images.name(i).split("/")[2] for i in range(0, len(images), 12)]
    assert by_wnid != [name for name in folders if name != "air_freshener"]
