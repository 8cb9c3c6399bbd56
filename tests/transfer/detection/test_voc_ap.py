"""VOC's average precision equals hand counts, a plain loop and detectron2."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.transfer.detection.scenes import scene as any_scene
from transfer.datasets.scenes import Scene, Scenes
from transfer.detection.results import Detections
from transfer.detection.voc_ap import THRESHOLDS, pixel_iou, voc_ap

Box = tuple[float, float, float, float]
SIDE = 100


def scene(
    name: str, boxes: Sequence[Box], classes: Sequence[int], difficult: Sequence[int]
) -> Scene:
    aside = np.array(difficult, dtype=np.bool_)
    return any_scene(f"{name}.jpg", name, SIDE, SIDE, boxes, classes, aside=aside)


def found(boxes: Sequence[Box], scores: Sequence[float], classes: Sequence[int]) -> Detections:
    return Detections(
        height=SIDE,
        width=SIDE,
        boxes=torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        scores=torch.tensor(scores),
        classes=torch.tensor(classes, dtype=torch.int64),
    )


def one_class(scene: Scene) -> Scenes:
    return Scenes(Path(), [scene], ["thing"])


def column(i: int) -> Box:
    """The i-th of ten boxes side by side."""
    return (10.0 * i, 0, 10.0 * i + 8, 20)


def random_split(seed: int, *, classes: int = 4) -> tuple[list[Detections], Scenes]:
    """Objects on 30 images, and detections near them and elsewhere.

    Each class has objects.
    """
    rng = np.random.default_rng(seed)
    scenes, detections = [], []
    for i in range(30):
        corner = rng.integers(0, 60, size=(6, 2))
        boxes = np.concatenate([corner, corner + rng.integers(8, 40, size=(6, 2))], axis=1)
        labels = np.arange(6) % classes if i == 0 else rng.integers(0, classes, 6)
        difficult = rng.random(6) < (0 if i == 0 else 0.2)
        scenes.append(scene(f"{i:06d}", boxes.tolist(), labels.tolist(), difficult.tolist()))
        near = np.repeat(boxes, 4, axis=0) + rng.normal(0, 2.5, size=(24, 4))
        guess = np.where(rng.random(24) < 0.8, np.repeat(labels, 4), rng.integers(0, classes, 24))
        near = np.clip(near, 0, SIDE)
        detections.append(found(near.tolist(), rng.random(24).tolist(), guess.tolist()))
    return detections, Scenes(Path(), scenes, [f"class{c}" for c in range(classes)])


def slow_curve(
    detections: list[Detections], scenes: Scenes, label: int, threshold: float
) -> tuple[list[float], list[float]]:
    """Return recall and precision after each detection of a class."""
    each = [scenes.scene(i) for i in range(len(scenes))]
    total = sum(int(((s.classes == label) & ~s.aside).sum()) for s in each)
    lines = [
        (float(f"{score:.3f}"), i, [float(f"{v:.1f}") for v in (box + torch.tensor([1, 1, 0, 0]))])
        for i, d in enumerate(detections)
        for box, score, c in zip(d.boxes, d.scores.tolist(), d.classes.tolist(), strict=True)
        if c == label
    ]
    order = np.argsort(-np.array([line[0] for line in lines]))
    taken: set[tuple[int, int]] = set()
    hits = misses = 0
    recalls, precisions = [], []
    for _, i, box in (lines[n] for n in order):
        best, which = -1.0, -1
        for j in np.flatnonzero(each[i].classes == label).tolist():
            true = each[i].boxes[j] + [1, 1, 0, 0]
            wide = min(box[2], true[2]) - max(box[0], true[0]) + 1
            high = min(box[3], true[3]) - max(box[1], true[1]) + 1
            common = max(wide, 0) * max(high, 0)
            areas = [(b[2] - b[0] + 1) * (b[3] - b[1] + 1) for b in (box, true)]
            if common / (sum(areas) - common) > best:
                best, which = common / (sum(areas) - common), j
        if best <= threshold:
            misses += 1
        elif not each[i].aside[which]:
            hits += (i, which) not in taken
            misses += (i, which) in taken
            taken.add((i, which))
        recalls.append(hits / total)
        precisions.append(hits / max(hits + misses, 1))
    return recalls, precisions


def slow_ap(recalls: list[float], precisions: list[float]) -> tuple[float, float]:
    """Percent, at 11 points and by area."""
    pairs = list(zip(recalls, precisions, strict=True))
    points = [max((p for r, p in pairs if r >= t), default=0.0) for t in np.arange(0, 1.1, 0.1)]
    steps = np.diff([0.0, *recalls])
    area = sum(step * max(precisions[n:]) for n, step in enumerate(steps))
    return 100 * sum(points) / 11, 100 * float(area)


def test_only_iou_above_the_threshold_hits_and_edge_pixels_count() -> None:
    # 10 pixels, of which 5 are covered: 0.5; and 6 of 10
    scenes = one_class(scene("1", [(0, 0, 10, 1)], [0], [0]))
    assert voc_ap([found([(0, 0, 5, 1)], [0.9], [0])], scenes)["AP"] == 0
    assert voc_ap([found([(0, 0, 6, 1)], [0.9], [0])], scenes)["AP50"] == pytest.approx(100)
    iou = pixel_iou(np.array([[1.0, 1, 6, 1]]), np.array([[1.0, 1, 10, 1]]))
    assert iou.item() == pytest.approx(0.6)


def test_a_class_without_objects_counts_as_0() -> None:
    scenes = Scenes(Path(), [scene("1", [column(0)], [0], [0])], ["cat", "dog", "cow", "emu"])
    ap = voc_ap([found([column(0), column(4)], [0.9, 0.8], [0, 1])], scenes)
    assert ap["AP50"] == pytest.approx(25)
    assert [ap["AP/cat"], ap["AP/dog"], ap["AP/cow"]] == pytest.approx([100, 0, 0])


def test_no_detections_are_0() -> None:
    scenes = one_class(scene("1", [column(0)], [0], [0]))
    assert set(voc_ap([found([], [], [])], scenes).values()) == {0.0}


def test_3_of_10_objects_do_not_reach_the_recall_of_three_tenths() -> None:
    scenes = one_class(scene("1", [column(i) for i in range(10)], [0] * 10, [0] * 10))
    boxes = [column(i) for i in range(3)]
    ap = voc_ap([found(boxes, [0.9, 0.8, 0.7], [0, 0, 0])], scenes)
    # recalls 0, 0.1 and 0.2, but in the reference's floats not 0.3
    assert ap["AP50"] == pytest.approx(100 * 3 / 11)
    assert ap["AP50_area"] == pytest.approx(30)


@pytest.mark.parametrize("seed", range(3))
def test_all_thresholds_agree_with_counting_one_detection_at_a_time(seed: int) -> None:
    detections, scenes = random_split(seed)
    ap = voc_ap(detections, scenes)
    slow: NDArray[np.float64] = np.array(
        [[slow_ap(*slow_curve(detections, scenes, c, t)) for t in THRESHOLDS] for c in range(4)]
    )
    assert ap["AP"] == pytest.approx(slow[:, :, 0].mean(), abs=1e-9)
    assert ap["AP_area"] == pytest.approx(slow[:, :, 1].mean(), abs=1e-9)
    assert ap["AP75"] == pytest.approx(slow[:, 5, 0].mean(), abs=1e-9)
    assert ap["AP50/class2"] == pytest.approx(slow[2, 0, 0], abs=1e-9)
    assert 5 < ap["AP"] < 95


def write_devkit(folder: Path, scenes: Scenes) -> None:
    (folder / "Annotations").mkdir()
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    names = []
    for i in range(len(scenes)):
        image = scenes.scene(i)
        names.append(str(image.image_id))
        objects = "".join(
            f"<object><name>{scenes.class_names[c]}</name><pose>Left</pose><truncated>0</truncated>"
            f"<difficult>{int(aside)}</difficult><bndbox><xmin>{int(box[0]) + 1}</xmin>"
            f"<ymin>{int(box[1]) + 1}</ymin><xmax>{int(box[2])}</xmax><ymax>{int(box[3])}</ymax>"
            "</bndbox></object>"
            for box, c, aside in zip(image.boxes, image.classes, image.aside, strict=True)
        )
        file = folder / "Annotations" / f"{names[-1]}.xml"
        file.write_text(f"<annotation>{objects}</annotation>")
    (folder / "ImageSets" / "Main" / "test.txt").write_text("\n".join(names))


@pytest.mark.detectron2
@pytest.mark.parametrize(("year", "suffix"), [(2007, ""), (2012, "_area")])
def test_both_metrics_are_those_of_detectron2(year: int, suffix: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports what torch has deprecated
        from detectron2.data import MetadataCatalog
        from detectron2.evaluation import PascalVOCDetectionEvaluator
        from detectron2.structures import Boxes, Instances
    detections, scenes = random_split(7)
    write_devkit(tmp_path, scenes)
    name = f"{tmp_path}/{year}"  # the catalog outlives the test, and pytest reuses the path
    MetadataCatalog.get(name).set(
        thing_classes=list(scenes.class_names), dirname=str(tmp_path), year=year, split="test"
    )
    evaluator = PascalVOCDetectionEvaluator(name)
    evaluator.reset()
    for i, d in enumerate(detections):
        instances = Instances(
            (SIDE, SIDE), pred_boxes=Boxes(d.boxes), scores=d.scores, pred_classes=d.classes
        )
        evaluator.process([{"image_id": scenes.scene(i).image_id}], [{"instances": instances}])
    theirs = evaluator.evaluate()["bbox"]
    ours = voc_ap(detections, scenes)
    for metric in ("AP", "AP50", "AP75"):
        assert ours[metric + suffix] == pytest.approx(theirs[metric], abs=1e-9)
