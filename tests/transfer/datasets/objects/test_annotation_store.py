"""Stored annotations are those of the JSON file, and a damaged store is made again."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transfer.cells.checked_data import fingerprint
from transfer.datasets.catalog import map_annotations, open_scenes
from transfer.datasets.objects import annotation_store, coco
from transfer.datasets.scenes import Scenes
from transfer.running.folders import Folders

KINDS = ("coco17", "coco17_keypoints")
FILES = {"coco17": "instances_train2017.json", "coco17_keypoints": "person_keypoints_val2017.json"}
BOX = [3, 4, 20, 10]
OUTLINE = [3, 4, 23.5, 4, 20, 13.25, 4, 14]


def odd(content: dict[str, Any]) -> None:
    """Give annotations of a small set the odd values that files have."""
    size = [content["images"][0][side] for side in ("height", "width")]
    crowd = {"iscrowd": 1, "bbox": BOX, "area": 9.5}
    entries = content["annotations"]
    content["images"][1]["file_name"] = "größe 図.jpg"
    content["categories"][0]["name"] = "Größe, 図"
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


def parsed(key: str, data: Path, split: str) -> Scenes:
    coco._recent.clear()
    return open_scenes(key, data, split)


def mapped(key: str, data: Path, split: str, cache: Path) -> Scenes:
    """Return a split whose arrays are those of the store."""
    coco._recent.clear()
    map_annotations([key], Folders(data, cache, cache))
    scenes = open_scenes(key, data, split)
    assert is_mapped(scenes.arrays.boxes)
    return scenes


def is_mapped(values: np.ndarray | None) -> bool:
    while isinstance(values, np.ndarray) and not isinstance(values, np.memmap):
        values = values.base
    return isinstance(values, np.memmap)


def assert_same(one: Scenes, other: Scenes) -> None:
    assert one.fingerprint == other.fingerprint
    assert vars(one.source)["folder"] == vars(other.source)["folder"]
    for name in ("class_names", "category_ids", "annotations", "faulty", "faults", "notes"):
        assert vars(one)[name] == vars(other)[name], name
    for first, second in zip(one, other, strict=True):
        assert first.name == second.name
        assert first.image_id == second.image_id
        assert (first.width, first.height) == (second.width, second.height)
        assert (first.polygons is None) == (second.polygons is None)
        assert (first.keypoints is None) == (second.keypoints is None)
        assert list(first.parts()) == list(second.parts())


@pytest.fixture
def changed(copy_of: Callable[[str], Path]) -> Callable[[str], Path]:
    """Return a function that returns the data folder of a small set with odd annotations."""

    def change(key: str) -> Path:
        data = copy_of(key)
        file = data / "coco" / "annotations" / FILES[key]
        content = json.loads(file.read_text())
        odd(content)
        file.write_text(json.dumps(content))
        return data

    return change


@pytest.mark.parametrize("split", ["train", "val", "trainval", "test"])
@pytest.mark.parametrize("key", KINDS)
def test_mapped_splits_are_those_of_the_json_file(
    key: str, split: str, small_data: Path, tmp_path: Path
) -> None:
    expected = parsed(key, small_data, split)
    assert_same(mapped(key, small_data, split, tmp_path), expected)


@pytest.mark.parametrize("key", KINDS)
def test_odd_annotations_are_those_of_the_json_file(
    key: str, changed: Callable[[str], Path], tmp_path: Path
) -> None:
    data = changed(key)
    split = "test" if "val" in FILES[key] else "trainval"
    expected = parsed(key, data, split)
    assert expected.faults
    assert expected.notes
    assert_same(mapped(key, data, split, tmp_path), expected)


def _store(cache: Path) -> Path:
    (path,) = cache.glob("annotations/*.scenes")
    return path


@pytest.fixture
def published(small_data: Path) -> coco._Published:
    return coco._Published(small_data, "instances", "val2017")


@pytest.mark.parametrize("damage", ["torn", "absent", "foreign"])
def test_a_damaged_store_is_made_again(
    damage: str, published: coco._Published, tmp_path: Path
) -> None:
    expected = annotation_store.read_once(published.file, "x", tmp_path, published.parse)
    path = _store(tmp_path)
    file = path / "coordinates.npy"
    content = file.read_bytes()
    file.unlink()  # the pages that are mapped stay those of the whole file
    if damage != "absent":
        file.write_bytes(content[:-100] if damage == "torn" else b"{}" * 1000)
    assert annotation_store.load_scenes(path, published.file) is None
    again = annotation_store.read_once(published.file, "x", tmp_path, published.parse)
    assert_same(again, expected)
    assert file.read_bytes() == content
    assert {entry.suffix for entry in path.parent.iterdir()} == {".scenes", ".lock"}


def test_what_a_plan_has_parsed_is_stored_and_mapped_by_the_evaluation(
    small_data: Path, tmp_path: Path
) -> None:
    fingerprint.cache_clear()
    coco._recent.clear()
    expected = fingerprint("coco17", small_data, tmp_path)
    assert not list(tmp_path.iterdir())  # a plan writes nothing
    map_annotations(["coco17"], Folders(small_data, tmp_path, tmp_path))
    assert len(list(tmp_path.glob("annotations/*.scenes"))) == 2
    assert is_mapped(open_scenes("coco17", small_data, "test").arrays.boxes)
    fingerprint.cache_clear()
    assert fingerprint("coco17", small_data, tmp_path) == expected


def test_a_changed_annotation_file_has_its_own_store(
    copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    data = copy_of("coco17")
    before = mapped("coco17", data, "test", tmp_path).fingerprint
    file = data / "coco" / "annotations" / "instances_val2017.json"
    content = json.loads(file.read_text())
    content["annotations"][1]["bbox"][0] += 1.5
    file.write_text(json.dumps(content))
    now = mapped("coco17", data, "test", tmp_path)
    assert now.fingerprint != before
    assert_same(now, parsed("coco17", data, "test"))


def test_a_full_disk_is_one_line_and_the_run_goes_on(
    published: coco._Published,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(annotation_store, "RELATIVE_SIZE", 10**9)
    scenes = annotation_store.read_once(published.file, "x", tmp_path, published.parse)
    assert_same(scenes, published.read())
    line = capsys.readouterr().err
    assert "GB are free" in line
    assert "each process parses instances_val2017.json by itself" in line
    assert not list(tmp_path.glob("annotations/*"))


def _read_and_count(published: coco._Published, cache: Path, counts: Any, start: Any) -> None:
    def parse(content: bytes) -> Scenes:
        with counts.get_lock():
            counts.value += 1
        return published.parse(content)

    start.wait()
    annotation_store.read_once(published.file, "x", cache, parse)


def test_processes_that_start_together_parse_once(
    published: coco._Published, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("fork")
    counts, start = context.Value("i", 0), context.Barrier(3)
    processes = [
        context.Process(target=_read_and_count, args=(published, tmp_path, counts, start))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert counts.value == 1
