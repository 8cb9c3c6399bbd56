"""Stored annotations equal the JSON file, also for odd values."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.transfer.datasets.conftest import CopyOf
from transfer.cells.checked_data import fingerprint
from transfer.datasets.catalog import load_annotations, open_scenes
from transfer.datasets.objects import coco
from transfer.datasets.objects.annotation_store import read_once
from transfer.datasets.scenes import Scenes

FILES = {"coco17": "instances_train2017.json", "coco17_keypoints": "person_keypoints_val2017.json"}
OUTLINE = [3, 4, 23.5, 4, 20, 13.25, 4, 14]


def odd(content: dict[str, Any]) -> None:
    """Give annotations of a small set the odd values that files have."""
    size = [content["images"][0][side] for side in ("height", "width")]
    crowd = {"iscrowd": 1, "bbox": [3, 4, 20, 10], "area": 9.5}
    entries = content["annotations"]
    content["images"][1]["file_name"] = "größe 図.jpg"
    entries[0] |= crowd | {"segmentation": {"size": size, "counts": [size[0] * size[1]]}}
    entries[1] |= crowd | {"segmentation": {"size": size, "counts": "abc"}}
    entries[2] |= {"bbox": [-5, -5, 60, 60]}  # passes the border
    entries[3] |= {"bbox": [10, 10, 0, 5]}  # no area
    entries[4] |= {"segmentation": [OUTLINE, [1, 2, 3, 4], OUTLINE[:6]]}
    entries[5] |= {"segmentation": []}
    entries[6] |= {"bbox": [5000, 5000, 4, 4]}
    entries[7].pop("category_id")
    entries[8].pop("iscrowd")
    entries[9] |= {"id": 2**70}
    last = max(image["id"] for image in content["images"])
    content["images"].append(content["images"][0] | {"id": last + 2**70})


def rename_first_category(folder: Path, name: str) -> None:
    """Change a name in all files, since train and val must agree."""
    for file in folder.iterdir():
        content = json.loads(file.read_text())
        content["categories"][0]["name"] = name
        file.write_text(json.dumps(content))


def assert_same(item: Scenes, other: Scenes) -> None:
    assert item.fingerprint == other.fingerprint
    assert item.source.folder == other.source.folder
    for name in ("annotations", "faulty", "faults", "lost"):
        assert vars(item)[name] == vars(other)[name], name
    for first, second in zip(item, other, strict=True):
        assert (first.polygons is None) == (second.polygons is None)
        assert (first.keypoints is None) == (second.keypoints is None)


@pytest.mark.parametrize("key", FILES)
def test_stored_splits_are_those_of_the_json_file(
    key: str, copy_of: CopyOf, tmp_path: Path
) -> None:
    data, cache = copy_of(key), tmp_path / "cache"
    file = data / "coco" / "annotations" / FILES[key]
    for change in (lambda content: None, odd):
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))
        rename_first_category(file.parent, "Größe, 図" if change is odd else "person")
        for split in ("train", "val", "trainval", "test"):
            coco._opened.clear()
            parsed = open_scenes(key, data, split)
            coco._opened.clear()
            load_annotations([key], data, cache)
            stored = open_scenes(key, data, split)
            assert_same(stored, parsed)
    assert len(list(cache.glob("annotations/*.npz"))) == 4  # changed files have their own


@pytest.fixture
def published(small_data: Path) -> Path:
    return small_data / "coco" / "annotations" / "instances_val2017.json"


def read(file: Path, cache: Path) -> Scenes:
    return read_once(file, cache, coco._parse_scenes)


def test_an_unreadable_store_is_made_again(published: Path, tmp_path: Path) -> None:
    expected = read(published, tmp_path)
    (entry,) = tmp_path.glob("annotations/*.npz")
    whole = entry.read_bytes()
    for content in (b"", b"?", whole[:-100]):
        entry.write_bytes(content)
        assert_same(read(published, tmp_path), expected)
        assert entry.stat().st_size == len(whole)


def test_stored_annotations_are_not_parsed_again(published: Path, tmp_path: Path) -> None:
    read(published, tmp_path)
    read_once(published, tmp_path, lambda file, content: pytest.fail("parsed again"))


def test_a_file_that_is_replaced_while_it_is_parsed_is_read_again(
    published: Path, tmp_path: Path
) -> None:
    file = tmp_path / "coco" / "annotations" / published.name
    file.parent.mkdir(parents=True)
    shutil.copy(published, file)
    second = published.with_name("instances_train2017.json").read_bytes()

    def parse(file: Path, content: bytes) -> Scenes:
        file.write_bytes(second)
        return coco._parse_scenes(file, content)

    first = read_once(file, tmp_path, parse)
    assert len(first) < len(read(file, tmp_path))


def test_plan_reads_stored_results_and_writes_nothing(small_data: Path, tmp_path: Path) -> None:
    fingerprint.cache_clear()
    coco._opened.clear()
    expected = fingerprint("coco17", small_data, tmp_path)
    assert not list(tmp_path.iterdir())
    load_annotations(["coco17"], small_data, tmp_path)
    assert len(list(tmp_path.glob("annotations/*.npz"))) == 2
    fingerprint.cache_clear()
    coco._opened.clear()
    assert fingerprint("coco17", small_data, tmp_path) == expected


def test_a_full_disk_is_one_line_and_the_run_goes_on(
    published: Path,
    tmp_path: Path,
    fill_disk: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_disk("/annotations/")
    scenes = read(published, tmp_path)
    assert_same(scenes, coco._parse_scenes(published, published.read_bytes()))
    (line,) = capsys.readouterr().err.splitlines()
    assert "each process parses instances_val2017.json again" in line
