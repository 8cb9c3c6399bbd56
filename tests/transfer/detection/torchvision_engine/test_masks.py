"""Mask targets against areas that are known."""

import math

import numpy as np
import pytest
import torch

from tests.transfer.detection.small_samples import small_samples
from transfer.detection.torchvision_engine.masks import class_probabilities, mask_loss, mask_targets
from transfer.detection.torchvision_engine.regions import Regions

BOX = torch.tensor([[10.0, 20.0, 66.0, 48.0]])


def rectangle(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return np.array([left, top, right, top, right, bottom, left, bottom])


def test_a_polygon_that_fills_the_box_fills_the_target() -> None:
    assert mask_targets(BOX, [(rectangle(0, 0, 100, 100),)], 28).mean() == 1


def test_the_left_half_of_the_box_is_the_left_half_of_the_target() -> None:
    target = mask_targets(BOX, [(rectangle(10, 20, 38, 48),)], 28)[0]
    assert target[:, :14].mean() == 1
    assert target[:, 14:].sum() == 0


def test_the_outlines_of_an_object_are_joined() -> None:
    parts = (rectangle(10, 20, 24, 48), rectangle(52, 20, 66, 48))
    target = mask_targets(BOX, [parts], 28)[0]
    assert target.mean() == 0.5
    assert target[:, 7:21].sum() == 0


def test_an_ellipse_covers_a_quarter_of_pi() -> None:
    angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    ellipse = np.stack([38 + 28 * np.cos(angles), 34 + 14 * np.sin(angles)], axis=1).reshape(-1)
    assert mask_targets(BOX, [(ellipse,)], 56).mean().item() == pytest.approx(math.pi / 4, abs=0.01)


def test_an_object_without_outlines_is_nowhere() -> None:
    assert mask_targets(BOX, [()], 28).sum() == 0


def test_the_loss_looks_at_the_own_class_only() -> None:
    sample = small_samples(1)[0]
    logits = torch.zeros(2, 3, 28, 28)
    logits[:, 0] = 100.0
    regions = Regions(
        boxes=sample.boxes[:2], classes=torch.tensor([1, 2]), objects=torch.tensor([0, 1])
    )
    assert mask_loss(logits, [regions], [sample]).item() == pytest.approx(math.log(2))


def test_a_sample_without_polygons_is_an_error() -> None:
    sample = small_samples(1)[0]
    bare = type(sample)(image=sample.image, boxes=sample.boxes, classes=sample.classes)
    zero = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="objects has no polygons"):
        mask_loss(
            torch.zeros(1, 1, 28, 28),
            [Regions(boxes=sample.boxes[:1], classes=zero, objects=zero)],
            [bare],
        )


def test_probabilities_are_those_of_the_detected_class() -> None:
    logits = torch.tensor([-1.0, 0.0, 1.0]).reshape(1, 3, 1, 1).expand(2, 3, 28, 28)
    masks = class_probabilities(logits, torch.tensor([1, 2]))
    assert masks[:, 0, 0].tolist() == pytest.approx([0.5, 1 / (1 + math.exp(-1))])
