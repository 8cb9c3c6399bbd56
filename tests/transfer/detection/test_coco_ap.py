"""COCO's average precision against hand-counted curves and pycocotools."""

import io
import json
import math
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from tests.transfer.detection.scenes import scene
from transfer.datasets.expected import Sizes
from transfer.datasets.objects.coco import Kind as CocoKind
from transfer.datasets.objects.coco import read_coco
from transfer.datasets.scenes import Scenes
from transfer.detection.coco_ap import SUMMARY, Kind, _entries, coco_ap
from transfer.detection.detector import ResizedDetections
from transfer.detection.results import Detections, to_original_size

KINDS: tuple[Kind, ...] = ("bbox", "segm", "keypoints")
WIDTH, HEIGHT = 220, 180
CATEGORIES = {"cat": 3, "dog": 17, "emu": 90}


def annotation(
    image: int, category: str, box: tuple[float, float, float, float], *, crowd: bool = False
) -> dict[str, Any]:
    """Return an ellipse in a box (left, top, width, height), with keypoints on its border.

    A crowd is a raster of the whole image without keypoints, as in COCO.
    """
    left, top, width, height = box
    turns = np.linspace(0, 2 * math.pi, 17, endpoint=False)
    x = left + width / 2 * (1 + np.cos(turns))
    y = top + height / 2 * (1 + np.sin(turns))
    outline = np.stack([x, y], axis=1)
    segmentation: Any = [outline.flatten().tolist()]
    if crowd:
        segmentation = {"size": [HEIGHT, WIDTH], "counts": [0, HEIGHT * WIDTH]}
    return {
        "image_id": image,
        "category_id": CATEGORIES[category],
        "bbox": list(box),
        "area": math.pi / 4 * width * height,
        "iscrowd": int(crowd),
        "segmentation": segmentation,
        "keypoints": (np.column_stack([outline, np.full(17, 2)]) * (not crowd)).ravel().tolist(),
        "num_keypoints": 0 if crowd else 17,
    }


CAT = annotation(1, "cat", (5, 5, 60, 70))
DOG = annotation(1, "dog", (90, 50, 110, 120))


def scenes_of(
    folder: Path, annotations: Sequence[dict[str, Any]], images: Sequence[int] = (1,)
) -> Scenes:
    """The file holds all images of the annotations, the scenes these."""
    ids = sorted({entry["image_id"] for entry in annotations} | set(images))
    content = {
        "images": [{"id": i, "width": WIDTH, "height": HEIGHT, "file_name": ""} for i in ids],
        "annotations": [entry | {"id": n + 1} for n, entry in enumerate(annotations)],
        "categories": [{"id": number, "name": name} for name, number in CATEGORIES.items()],
    }
    file = folder / "instances.json"
    file.write_text(json.dumps(content))
    each = [scene(f"{i}.jpg", i, WIDTH, HEIGHT) for i in images]
    numbers = list(CATEGORIES.values())
    return Scenes(folder, each, list(CATEGORIES), category_ids=numbers, annotations=file)


def as_found(annotations: Sequence[dict[str, Any]], scores: Sequence[float]) -> Detections:
    """These objects, detected."""
    boxes = torch.tensor([entry["bbox"] for entry in annotations]).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    outlines = [coco_mask.frPyObjects(a["segmentation"], HEIGHT, WIDTH) for a in annotations]
    keypoints = torch.tensor([entry["keypoints"] for entry in annotations]).reshape(-1, 17, 3)
    keypoints[:, :, :2] += 0.5
    numbers = list(CATEGORIES.values())
    return Detections(
        height=HEIGHT,
        width=WIDTH,
        boxes=boxes,
        scores=torch.tensor(scores),
        classes=torch.tensor([numbers.index(a["category_id"]) for a in annotations]).long(),
        masks=[coco_mask.merge(parts)["counts"].decode() for parts in outlines],
        keypoints=keypoints,
    )


def test_objects_on_other_images_of_the_file_are_not_missed(tmp_path: Path) -> None:
    objects = [CAT, CAT | {"image_id": 2}]
    scenes = scenes_of(tmp_path, objects, images=[1])
    assert coco_ap([as_found([CAT], [0.9])], scenes, ["bbox"])[0]["bbox"]["AP"] == pytest.approx(
        100
    )
    scenes = scenes_of(tmp_path, objects, images=[1, 2])
    both = [as_found([CAT], [0.9]), as_found([], [])]
    # recalls 0, 0.01, ..., 0.5 of 101
    ap = coco_ap(both, scenes, ["bbox"])[0]["bbox"]["AP"]
    assert ap == pytest.approx(100 * 51 / 101)


def read_changed(
    data: Path,
    objects: Sequence[dict[str, Any]],
    change: Callable[[dict[str, Any]], None],
    kind: CocoKind,
) -> Scenes:
    """Return the split of these objects, whose file is changed before."""
    folder = data / "coco" / "annotations"
    folder.mkdir(parents=True)
    file = scenes_of(folder, objects).annotations
    assert file is not None
    content = json.loads(file.read_text())
    change(content)
    file.unlink()
    (folder / f"{kind}_val2017.json").write_text(json.dumps(content))
    return read_coco(kind, data, "test", Sizes(classes=3, counts={}))


def test_a_broken_object_is_neither_hit_nor_missed(tmp_path: Path) -> None:
    broken: list[dict[str, Any]] = [
        {"segmentation": []},
        {"segmentation": [[1, 2, 3, 4]]},
        {"bbox": None},
        {"area": "12"},
        {"image_id": [1]},
        {"category_id": [1]},
        {"id": 1},
        {"iscrowd": None},
        {"num_keypoints": None},
    ]
    for number, changes in enumerate(broken):
        persons = "num_keypoints" in changes
        kinds: list[Kind] = ["bbox", "keypoints" if persons else "segm"]

        def change(file: dict[str, Any], changes: dict[str, Any] = changes) -> None:
            file["annotations"][1].update(changes)

        kind: CocoKind = "person_keypoints" if persons else "instances"
        scenes = read_changed(tmp_path / str(number), [CAT, DOG], change, kind)
        assert len(scenes.faults) == 1, changes
        for values in coco_ap([as_found([CAT], [0.9])], scenes, kinds)[0].values():
            assert values["AP"] == pytest.approx(100), changes
            assert "AP/dog" not in values, changes


def make_odd(file: dict[str, Any]) -> None:
    """Annotations with unusual values, broken objects and a repeated image."""
    entries = file["annotations"]
    entries[2] |= {"bbox": [10, 10, 0, 5]}
    entries[3] |= {"num_keypoints": 3, "area": 1e-17}
    entries[4] |= {"area": 10**4, "bbox": [1, 2, 30, 40]}
    entries[5] |= {"image_id": [1]}
    entries[6] |= {"id": 0, "segmentation": [[1, 2, 3, 4], *entries[6]["segmentation"]]}
    entries[7].pop("area")
    file["images"].append(file["images"][0] | {"width": 1})


def own_summary(scenes: Scenes, results: list[Any], kind: Kind) -> dict[str, float]:
    """Return pycocotools' results for the valid annotations of a file."""
    assert scenes.annotations is not None
    content = json.loads(scenes.annotations.read_text())
    content["images"] = content["images"][: len(scenes)]
    pairs = enumerate(content["annotations"])
    sound = [{**item, "id": n + 1} for n, item in pairs if n not in scenes.faulty]
    for item in sound:
        if isinstance(item["segmentation"], list):
            item["segmentation"] = [part for part in item["segmentation"] if len(part) >= 6]
    scenes.annotations.write_text(json.dumps(content | {"annotations": sound}))
    with redirect_stdout(io.StringIO()):
        truth = COCO(str(scenes.annotations))
        evaluation = COCOeval(truth, truth.loadRes(results), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    values = zip(SUMMARY[kind], evaluation.stats, strict=False)
    return {name: 100 * float(value) for name, value in values if value >= 0}


@pytest.mark.parametrize("kind", KINDS)
def test_odd_annotations_give_the_precisions_of_pycocotools_itself(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    by_image = random_annotations(rng, 4)
    by_image[2].append(annotation(3, "dog", (100, 0, 120, 180), crowd=True))
    file: CocoKind = "person_keypoints" if kind == "keypoints" else "instances"
    scenes = read_changed(tmp_path, list(chain(*by_image)), make_odd, file)
    assert len(scenes.faulty) == 2
    small = torch.empty(3, HEIGHT // 2, WIDTH // 2)
    result = [
        to_original_size(random_found(objects, rng), scene, small)
        for objects, scene in zip(by_image, scenes, strict=True)
    ]
    ap = coco_ap(result, scenes, [kind])[0][kind]
    assert capsys.readouterr().out == ""
    results = [_entries(f, i + 1, scenes.category_ids, kind) for i, f in enumerate(result)]
    expected = own_summary(scenes, list(chain(*results)), kind)
    assert {name: ap[name] for name in expected} == expected
    assert 1 < ap["AP"] < 99


def test_no_detections_are_0(tmp_path: Path) -> None:
    nothing = [as_found([], [])]
    ap, _ = coco_ap(nothing, scenes_of(tmp_path, [CAT]), KINDS)
    assert ap["segm"] == dict.fromkeys(("AP", "AP50", "AP75", "APm", "AP/cat"), 0.0)


def random_found(
    annotations: Sequence[dict[str, Any]], rng: np.random.Generator
) -> ResizedDetections:
    """Return three detections near each object, some of another class.

    The image has half the size.
    """
    boxes = np.repeat([entry["bbox"] for entry in annotations], 3, axis=0)
    boxes[:, 2:] += boxes[:, :2]
    k = len(boxes)
    right = np.repeat([list(CATEGORIES.values()).index(a["category_id"]) for a in annotations], 3)
    points = np.repeat([entry["keypoints"] for entry in annotations], 3, axis=0)
    points = points.reshape(k, 17, 3) + rng.normal(0, 2, size=(k, 17, 3))
    masks = rng.random((k, 28, 28)) * 0.3 + 0.3 + 0.3 * (rng.random((k, 28, 1)) > 0.2)
    return ResizedDetections(
        boxes=torch.from_numpy(boxes + rng.normal(0, 3, size=(k, 4))).float() / 2,
        scores=torch.from_numpy(rng.random(k)).float(),
        classes=torch.from_numpy(np.where(rng.random(k) < 0.8, right, rng.integers(0, 3, k))),
        masks=torch.from_numpy(masks).float(),
        keypoints=torch.from_numpy(points).float() / 2,
    )


def random_annotations(rng: np.random.Generator, num_images: int) -> list[list[dict[str, Any]]]:
    """Return objects of all sizes by image, with occasional crowds."""
    return [
        [
            annotation(
                image + 1,
                list(CATEGORIES)[int(rng.integers(0, 3))],
                (*rng.uniform(0, 100, 2).tolist(), *rng.uniform(12, 78, 2).tolist()),
                crowd=bool(rng.random() < 0.1),
            )
            for _ in range(5)
        ]
        for image in range(num_images)
    ]
