"""Stored annotations are those of the JSON file, and its odd ones are pycocotools' own."""

import io
import json
import multiprocessing
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from transfer.cells.checked_data import fingerprint
from transfer.datasets.catalog import map_annotations, open_scenes
from transfer.datasets.expected import Sizes
from transfer.datasets.objects import coco
from transfer.datasets.objects.annotation_store import read_once
from transfer.datasets.objects.coco import Kind
from transfer.datasets.scenes import Scenes
from transfer.detection.coco_ap import Kind as Measured
from transfer.detection.coco_ap import coco_ap
from transfer.detection.results import Detections

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


def mapped(key: str, data: Path, split: str, cache: Path) -> Scenes:
    """Return a split whose arrays are those of the store."""
    coco._opened.clear()
    map_annotations([key], data, cache)
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
    for name in ("class_names", "category_ids", "annotations", "faulty", "faults"):
        assert vars(one)[name] == vars(other)[name], name
    for first, second in zip(one, other, strict=True):
        assert (first.name, first.image_id) == (second.name, second.image_id)
        assert (first.polygons is None) == (second.polygons is None)
        assert (first.keypoints is None) == (second.keypoints is None)
        assert list(first.parts()) == list(second.parts())


@pytest.mark.parametrize("key", FILES)
def test_mapped_splits_are_those_of_the_json_file(
    key: str, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    data, cache = copy_of(key), tmp_path / "cache"
    file = data / "coco" / "annotations" / FILES[key]
    for change in (lambda content: None, odd):
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))
        for split in ("train", "val", "trainval", "test"):
            coco._opened.clear()
            assert_same(mapped(key, data, split, cache), open_scenes(key, data, split))
    assert len(list(cache.glob("annotations/*.scenes"))) == 3  # the changed file has its own
    split = "test" if "val" in FILES[key] else "trainval"
    assert open_scenes(key, data, split).faults


@pytest.fixture
def published(small_data: Path) -> Path:
    return small_data / "coco" / "annotations" / "instances_val2017.json"


def test_an_unreadable_store_is_made_again(published: Path, tmp_path: Path) -> None:
    expected = read_once(published, tmp_path, coco._parse_scenes)
    (path,) = tmp_path.glob("annotations/*.scenes")
    (path / "coordinates.npy").unlink()  # the pages that are mapped stay
    assert_same(read_once(published, tmp_path, coco._parse_scenes), expected)
    assert (path / "coordinates.npy").exists()
    assert {entry.suffix for entry in path.parent.iterdir()} == {".scenes", ".lock"}


def test_what_an_evaluation_has_stored_is_mapped_by_a_plan_that_writes_nothing(
    small_data: Path, tmp_path: Path
) -> None:
    fingerprint.cache_clear()
    coco._opened.clear()
    expected = fingerprint("coco17", small_data, tmp_path)
    assert not list(tmp_path.iterdir())
    map_annotations(["coco17"], small_data, tmp_path)
    assert len(list(tmp_path.glob("annotations/*.scenes"))) == 2
    fingerprint.cache_clear()
    coco._opened.clear()
    assert fingerprint("coco17", small_data, tmp_path) == expected
    assert is_mapped(open_scenes("coco17", small_data, "test").arrays.boxes)


def test_a_full_disk_is_one_line_and_the_run_goes_on(
    published: Path,
    tmp_path: Path,
    fill_disk: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill_disk("/annotations/")
    scenes = read_once(published, tmp_path, coco._parse_scenes)
    assert_same(scenes, coco._parse_scenes(published))
    (line,) = capsys.readouterr().err.splitlines()
    assert "each process parses instances_val2017.json by itself" in line


def _read_and_count(published: Path, cache: Path, counts: Any, start: Any) -> None:
    def parse(file: Path) -> Scenes:
        with counts.get_lock():
            counts.value += 1
        return coco._parse_scenes(file)

    start.wait()
    read_once(published, cache, parse)


def test_processes_that_start_together_parse_once(published: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    counts, start = context.Value("i", 0), context.Barrier(3)
    arguments = (published, tmp_path, counts, start)
    processes = [context.Process(target=_read_and_count, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert counts.value == 1


WIDTH, HEIGHT = 120, 90
IDS = (7, 3, 2**60, 11)
CATEGORIES = {90: "Größe, 図", 3: "cat"}


def entry(number: int, image: int, rng: np.random.Generator) -> dict[str, Any]:
    """A box with its corners as outline, and keypoints in it."""
    left, top = rng.uniform(0, 60, 2).tolist()
    w, h = rng.uniform(5, 30, 2).tolist()
    points = np.column_stack([rng.uniform([left, top], [left + w, top + h], (17, 2)), np.ones(17)])
    return {
        "id": number,
        "image_id": image,
        "category_id": list(CATEGORIES)[number % 2],
        "bbox": [left, top, w, h],
        "area": 0.7 * w * h,
        "iscrowd": 0,
        "segmentation": [[left, top, left + w, top, left + w, top + h, left, top + h]],
        "keypoints": points.ravel().tolist(),
        "num_keypoints": 17,
    }


def hostile(data: Path, kind: Kind) -> tuple[Scenes, Path]:
    """Crowds, a box without area, wrong counts, long numbers, images out of order, broken ones."""
    rng = np.random.default_rng(0)
    crowd = {"size": [HEIGHT, WIDTH], "counts": [50, HEIGHT * WIDTH - 50]}
    entries = [entry(n + 1, IDS[n % 4], rng) for n in range(16)]
    entries[1] |= {"iscrowd": 1, "segmentation": crowd, "num_keypoints": 0}
    entries[2] |= {"bbox": [10, 10, 0, 5]}
    entries[3] |= {"num_keypoints": 3, "area": 1e-17}
    entries[4] |= {"area": 10**4, "bbox": [1, 2, 30, 40]}
    entries[5] |= {"image_id": [1]}
    entries[6] |= {"segmentation": [[1, 2, 3, 4], *entries[6]["segmentation"]], "id": 0}
    entries[7].pop("area")
    images = [{"id": i, "width": WIDTH, "height": HEIGHT, "file_name": f"{i}.jpg"} for i in IDS]
    content = {
        "images": [*images, images[0] | {"width": 1}],
        "annotations": entries,
        "categories": [{"id": number, "name": name} for number, name in CATEGORIES.items()],
    }
    file = data / "coco" / "annotations" / f"{kind}_val2017.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return coco.read_coco(kind, data, "test", Sizes(classes=2, counts={})), file


def near(scenes: Scenes) -> tuple[list[Detections], list[dict[str, Any]]]:
    """Return detections near the objects of each image, and the same in pycocotools' form."""
    rng = np.random.default_rng(1)
    found, results = [], []
    for scene in scenes:
        boxes = np.repeat(scene.boxes, 2, axis=0).reshape(-1, 4)
        boxes = (boxes + rng.normal(0, 2, boxes.shape)).astype(np.float32)
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        scores = rng.random(len(boxes)).astype(np.float32)
        classes = np.repeat(scene.classes, 2)
        points = rng.uniform(0, 60, (len(boxes), 17, 3))
        if scene.keypoints is not None:
            points = np.repeat(scene.keypoints, 2, axis=0) + rng.normal(0, 1, points.shape)
        points = points.astype(np.float32)
        corners = [[[a, b, c, b, c, d, a, d]] for a, b, c, d in boxes.tolist()]
        masks = [coco_mask.frPyObjects(c, HEIGHT, WIDTH)[0]["counts"].decode() for c in corners]
        arrays = {"boxes": boxes, "scores": scores, "classes": classes, "keypoints": points}
        tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
        found.append(Detections(height=HEIGHT, width=WIDTH, masks=masks, **tensors))
        results += [
            {
                "image_id": scene.image_id,
                "category_id": scenes.category_ids[classes[i]],
                "score": float(scores[i]),
                "bbox": [*boxes[i, :2].tolist(), *(boxes[i, 2:] - boxes[i, :2]).tolist()],
                "segm": {"size": [HEIGHT, WIDTH], "counts": masks[i]},
                "keypoints": (points[i] - np.array([0.5, 0.5, 0], np.float32)).ravel().tolist(),
            }
            for i in range(len(boxes))
        ]
    return found, results


def own_reading(
    scenes: Scenes, file: Path, results: list[dict[str, Any]], measured: Measured
) -> list[float]:
    """Return the summary of pycocotools on a file that holds the sound annotations only."""
    content = json.loads(file.read_text())
    content["images"] = content["images"][: len(scenes)]
    pairs = enumerate(content["annotations"])
    sound = [{**one, "id": n + 1} for n, one in pairs if n not in scenes.faulty]
    for one in sound:
        if isinstance(one["segmentation"], list):
            one["segmentation"] = [part for part in one["segmentation"] if len(part) >= 6]
    file.write_text(json.dumps(content | {"annotations": sound}))
    for one in results:
        mask = one.pop("segm")
        if measured == "segm":
            del one["bbox"], one["keypoints"]
            one["segmentation"] = mask
    with redirect_stdout(io.StringIO()):
        truth = COCO(str(file))
        evaluation = COCOeval(truth, truth.loadRes(results), measured)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [100 * float(value) for value in evaluation.stats]


@pytest.mark.parametrize("measured", ["bbox", "segm", "keypoints"])
def test_odd_annotations_give_the_precisions_of_pycocotools_itself(
    tmp_path: Path, measured: Measured
) -> None:
    scenes, file = hostile(tmp_path, "person_keypoints" if measured == "keypoints" else "instances")
    assert len(scenes.faulty) >= 2
    found, results = near(scenes)
    ap = coco_ap(found, scenes, [measured])[measured]
    expected = own_reading(scenes, file, results, measured)
    assert (ap["AP"], ap["AP50"]) == (expected[0], expected[1])
    assert 1 < ap["AP"] < 99
