"""ObjectNet: its thirteen classes of ImageNet-100, their folders and the red border."""

import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from transfer.datasets.check import check
from transfer.datasets.expected import SMALL_DATA, Sizes
from transfer.datasets.imagenet.imagenet import imagenet100_wnids
from transfer.datasets.imagenet.objectnet import WNIDS, read_objectnet13


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
