"""Per-image outcomes survive a record, and resampling is correct."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.transfer.detection.test_coco_ap import annotation, as_found, scenes_of
from tests.transfer.detection.test_voc_ap import found, random_split, scene
from transfer.datasets.scenes import Scenes
from transfer.detection import coco_ap as coco
from transfer.detection.voc_ap import resampled_voc_ap, voc_ap
from transfer.metrics import average_precision
from transfer.outcomes import (
    NUM_RESAMPLES,
    PER_IMAGE,
    per_image,
    read_per_image,
    resampled_precision,
    resamples,
)
from transfer.segmentation.iou import overlap, resampled_overlap


@pytest.mark.parametrize("of", [1, 75])
def test_right_answers_survive_a_record(of: int) -> None:
    rng = np.random.default_rng(0)
    right, labels = rng.integers(0, of + 1, 1001), rng.integers(0, 1000, 1001)
    stored = read_per_image(json.loads(json.dumps(per_image(right, labels, num_predictions=of))))
    assert stored is not None
    np.testing.assert_array_equal(stored.fractions, right / of)
    np.testing.assert_array_equal(stored.labels, labels)


def test_weights_are_those_of_the_metric() -> None:
    labels = np.array([0, 0, 0, 2])  # a class without images has no part
    stored = read_per_image(per_image(np.array([1, 1, 0, 0]), labels))
    assert stored is not None
    assert stored.weights("top1") @ stored.fractions == pytest.approx(1 / 2)
    assert stored.weights("mean_per_class") @ stored.fractions == pytest.approx((2 / 3 + 0) / 2)


def test_answers_that_are_cut_off_or_too_few_are_none() -> None:
    right = np.random.default_rng(0).random(4000) < 0.7
    output = per_image(right, np.arange(4000) % 10)[PER_IMAGE]
    half = base64.b64encode(base64.b64decode(output["right"])[:200]).decode()
    for wrong in ({"right": half}, {"images": 3991}, {"images": 0}):
        assert read_per_image({PER_IMAGE: output | wrong}) is None
    assert read_per_image({PER_IMAGE: None}) is None  # an image of one corruption is missing


@pytest.mark.parametrize("points", ["area", "11"])
def test_a_resampled_precision_is_that_of_the_drawn_images(points: str) -> None:
    rng = np.random.default_rng(0)
    scores, positive = rng.permutation(60) / 60, rng.random(60) < 0.3
    counts = resamples(60)
    order = np.argsort(-scores)
    recalls = np.arange(11) / 10 if points == "11" else None
    found = resampled_precision(
        positive[order], ~positive[order], order, positive.astype(float), counts, recalls
    )
    assert counts.shape == (NUM_RESAMPLES, 60)
    for times, value in zip(counts[:5].astype(int), found, strict=False):
        sampled = torch.tensor(np.repeat(scores, times)), torch.tensor(np.repeat(positive, times))
        assert value == pytest.approx(average_precision(*sampled, points=points))  # type: ignore[arg-type]


def test_resampled_detections_score_as_voc_scores_the_drawn_images() -> None:
    detections, scenes = random_split(1)
    for detected in detections:
        detected.scores.copy_(torch.from_numpy(np.round(detected.scores.numpy(), 3)))
    found = resampled_voc_ap(detections, scenes)["AP"]
    draws = resamples(len(scenes)).astype(int)[:3]
    for times, value in zip(draws, found, strict=False):
        sampled = np.repeat(np.arange(len(scenes)), times)
        again = Scenes(Path(), [scenes.scene(int(i)) for i in sampled], scenes.class_names)
        # equal scores of different images may take either order
        assert value == pytest.approx(
            voc_ap([detections[i] for i in sampled], again)["AP"], abs=0.3
        )


def test_vocs_mean_leaves_out_classes_that_a_resample_lacks() -> None:
    rng = np.random.default_rng(0)
    scenes, detections = [], []
    for i in range(8):  # class 1 is on one image, class 2 on none
        boxes = [(10.0 * k, 0, 10.0 * k + 8, 20) for k in range(3)]
        classes = [0, 0, int(i == 3)]
        scenes.append(scene(str(i), boxes, classes, [0, 0, 0]))
        shift = rng.integers(-3, 4, 3)
        near = [(a + s, b, c + s, d) for (a, b, c, d), s in zip(boxes, shift, strict=True)]
        detections.append(found(near, np.round(rng.random(3), 3).tolist(), classes))
    split = Scenes(Path(), scenes, ["one", "two", "three"])
    values = resampled_voc_ap(detections, split)["AP"]
    lacking = 0
    for times, value in list(zip(resamples(8).astype(int), values, strict=True))[:20]:
        sampled = np.repeat(np.arange(8), times)
        again = Scenes(Path(), [scenes[i] for i in sampled], split.class_names)
        ap = voc_ap([detections[i] for i in sampled], again)
        names = ["one", "two", "three"] if 3 in sampled else ["one", "three"]
        lacking += 3 not in sampled
        # equal scores of one image, drawn several times, may take either order
        assert value == pytest.approx(np.mean([ap[f"AP/{name}"] for name in names]), abs=1e-6)
    assert 0 < lacking < 20


@pytest.mark.parametrize("kind", ["bbox", "segm", "keypoints"])
def test_with_each_image_once_the_resampled_precision_is_cocos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: coco.Kind
) -> None:
    truth = [
        annotation(1, "cat", (10, 10, 60, 60)),
        annotation(1, "dog", (100, 50, 80, 70)),
        annotation(2, "cat", (20, 30, 90, 90)),
        annotation(2, "cat", (120, 90, 70, 50), crowd=True),
    ]
    shifted = [annotation(1, "cat", (14, 13, 60, 60)), annotation(1, "cat", (100, 50, 80, 70))]
    far = [annotation(2, "cat", (24, 36, 90, 90)), annotation(2, "dog", (0, 0, 40, 40))]
    scenes = scenes_of(tmp_path, truth, (1, 2))
    found = [as_found(shifted, (0.9, 0.5)), as_found(far, (0.7, 0.6))]
    monkeypatch.setattr(coco, "resamples", lambda n: np.ones((1, n)))
    precisions, values = coco.coco_ap(found, scenes, [kind])
    expected = precisions[kind]
    assert values == {name: pytest.approx([expected[name]]) for name in ("AP", "AP50", "AP75")}
    assert 0 < expected["AP"] < expected["AP50"]


def test_resampled_masks_score_as_the_drawn_images() -> None:
    counts = np.random.default_rng(0).integers(0, 50, (7, 4, 4))
    counts[:, 3], counts[:, :, 3] = 0, 0  # a class that does not occur
    for times, value in zip(resamples(7).astype(int)[:3], resampled_overlap(counts), strict=False):
        assert value == pytest.approx(overlap(np.repeat(counts, times, axis=0).sum(axis=0)).mean)
