"""Stored annotations of a split give the precisions of pycocotools' own reading of the file."""

import io
import json
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

from transfer.datasets.expected import Sizes
from transfer.datasets.objects import coco_truth
from transfer.datasets.objects.coco import read_coco17, read_coco17_keypoints
from transfer.datasets.objects.coco_truth import published_truth
from transfer.datasets.scenes import Scenes
from transfer.detection.coco_ap import Kind, coco_ap
from transfer.detection.results import Detections

WIDTH, HEIGHT = 120, 90
IDS = (7, 3, 2**60, 11)
CATEGORIES = {90: "Größe, 図", 3: "cat"}
READERS = {"instances": read_coco17, "person_keypoints": read_coco17_keypoints}


def entry(number: int, image: int, rng: np.random.Generator, **changes: Any) -> dict[str, Any]:
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
    } | changes


def hostile(data: Path, kind: str) -> Scenes:
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
    return READERS[kind](data, "test", Sizes(classes=2, counts={}))


def near(scenes: Scenes, seed: int) -> list[Detections]:
    """Return detections near the objects of each image and elsewhere, scores drawn."""
    rng = np.random.default_rng(seed)
    found = []
    for scene in scenes:
        boxes = np.repeat(scene.boxes, 2, axis=0).reshape(-1, 4)
        boxes = boxes + rng.normal(0, 2, boxes.shape)
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        classes = np.repeat(scene.classes, 2)
        points = rng.uniform(0, 60, (len(boxes), 17, 3))
        if scene.keypoints is not None:
            points = np.repeat(scene.keypoints, 2, axis=0) + rng.normal(0, 1, points.shape)
        corners = [[[a, b, c, b, c, d, a, d]] for a, b, c, d in boxes.tolist()]
        masks = [coco_mask.frPyObjects(c, scene.height, scene.width)[0]["counts"] for c in corners]
        found.append(
            Detections(
                height=scene.height,
                width=scene.width,
                boxes=torch.from_numpy(boxes).float(),
                scores=torch.from_numpy(rng.random(len(boxes))).float(),
                classes=torch.from_numpy(classes),
                masks=[counts.decode() for counts in masks],
                keypoints=torch.from_numpy(points).float(),
            )
        )
    return found


def own_reading(scenes: Scenes, file: Path, found: list[Detections], kind: Kind) -> list[float]:
    """Return the summary of pycocotools on a file that holds the sound annotations only."""
    content = json.loads(file.read_text())
    content["images"] = content["images"][: len(scenes)]
    pairs = enumerate(content["annotations"])
    sound = [{**one, "id": n + 1} for n, one in pairs if n not in scenes.faulty]
    for one in sound:
        if isinstance(one["segmentation"], list):
            one["segmentation"] = [part for part in one["segmentation"] if len(part) >= 6]
    file.write_text(json.dumps(content | {"annotations": sound}))
    with redirect_stdout(io.StringIO()):
        truth = COCO(str(file))
        evaluation = COCOeval(truth, truth.loadRes(_results(scenes, found, kind)), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [100 * float(value) for value in evaluation.stats]


def _results(scenes: Scenes, found: list[Detections], kind: Kind) -> list[dict[str, Any]]:
    results = []
    for scene, detected in zip(scenes, found, strict=True):
        boxes = detected.boxes.clone()
        boxes[:, 2:] -= boxes[:, :2]
        assert detected.keypoints is not None
        assert detected.masks is not None
        points = detected.keypoints - torch.tensor([0.5, 0.5, 0.0])
        for i, label in enumerate(detected.classes.tolist()):
            shape: dict[str, Any] = {"bbox": boxes[i].tolist()}
            if kind == "segm":
                size = [scene.height, scene.width]
                shape = {"segmentation": {"size": size, "counts": detected.masks[i]}}
            if kind == "keypoints":
                shape["keypoints"] = points[i].flatten().tolist()
            place = {"image_id": scene.image_id, "category_id": scenes.category_ids[label]}
            results.append({**place, "score": float(detected.scores[i]), **shape})
    return results


KINDS: list[tuple[str, Kind]] = [
    ("instances", "bbox"),
    ("instances", "segm"),
    ("person_keypoints", "keypoints"),
]


@pytest.mark.parametrize(("kind", "measured"), KINDS, ids=[kind for _, kind in KINDS])
def test_stored_annotations_give_the_precisions_of_pycocotools_itself(
    tmp_path: Path, kind: str, measured: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = hostile(tmp_path, kind)
    assert len(scenes.faulty) >= 2
    found = near(scenes, seed=1)
    first = coco_ap(found, scenes, [measured], tmp_path / "cache")[measured]
    monkeypatch.setattr(coco_truth, "_parse", refuse)
    again = coco_ap(found, scenes, [measured], tmp_path / "cache")[measured]
    assert first == again
    assert scenes.annotations is not None
    expected = own_reading(scenes, scenes.annotations, found, measured)
    assert again["AP"] == expected[0]
    assert again["AP50"] == expected[1]
    assert 1 < again["AP"] < 99


def refuse(*_: object) -> None:
    raise AssertionError("the file was parsed again")


@pytest.mark.parametrize("kind", list(READERS))
def test_what_is_read_again_is_what_was_parsed(tmp_path: Path, kind: str) -> None:
    scenes = hostile(tmp_path, kind)
    assert scenes.annotations is not None
    parsed = published_truth(scenes, scenes.annotations)
    for _ in range(2):
        stored = published_truth(scenes, scenes.annotations, tmp_path / "cache")
        assert json.dumps(stored) == json.dumps(parsed)


@pytest.mark.parametrize(
    "change",
    [
        lambda file, scenes: scenes.subset([0, 1]),
        lambda file, scenes: file.write_text(file.read_text() + " ") and scenes,
    ],
    ids=["other images", "other file"],
)
def test_another_split_or_file_has_an_entry_of_its_own(
    tmp_path: Path, change: Callable[[Path, Scenes], Scenes]
) -> None:
    scenes = hostile(tmp_path, "instances")
    assert scenes.annotations is not None
    published_truth(scenes, scenes.annotations, tmp_path / "cache")
    changed = change(scenes.annotations, scenes)
    stored = published_truth(changed, scenes.annotations, tmp_path / "cache")
    assert len(stored["images"]) == len(changed)
    assert len(list((tmp_path / "cache").rglob("*.truth.json"))) == 2


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: text.replace(b"3", b"4")])
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    scenes = hostile(tmp_path, "instances")
    assert scenes.annotations is not None
    sound = published_truth(scenes, scenes.annotations, tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("*.truth.json")
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert published_truth(scenes, scenes.annotations, tmp_path / "cache") == sound
    assert path.read_bytes() == content


def test_without_room_for_the_entry_the_file_is_parsed(
    tmp_path: Path, fill_disk: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    scenes = hostile(tmp_path, "instances")
    assert scenes.annotations is not None
    fill_disk("/cache/")
    truth = published_truth(scenes, scenes.annotations, tmp_path / "cache")
    assert len(truth["images"]) == len(IDS)
    assert "each test parses instances_val2017.json anew" in capsys.readouterr().err
