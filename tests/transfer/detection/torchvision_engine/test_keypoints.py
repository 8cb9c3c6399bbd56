"""Keypoints: which regions learn, what it costs to know nothing, where a peak is."""

import math

import pytest
import torch

from tests.transfer.detection.small_samples import small_samples
from transfer.detection.sample import Sample
from transfer.detection.torchvision_engine.keypoints import (
    keypoint_loss,
    peaks,
    select_regions_with_keypoints,
)
from transfer.detection.torchvision_engine.regions import Regions

BOX = torch.tensor([[10.0, 20.0, 66.0, 76.0]])


def one_point(x: float, y: float, visible: float) -> Sample:
    points = torch.zeros(1, 17, 3)
    points[0, 3] = torch.tensor([x, y, visible])
    sample = small_samples(1)[0]
    return Sample(
        image=sample.image, boxes=BOX, classes=torch.zeros(1, dtype=torch.int64), keypoints=points
    )


def on_the_object() -> Regions:
    zero = torch.zeros(1, dtype=torch.int64)
    return Regions(boxes=BOX, classes=zero, objects=zero)


def test_a_region_learns_if_it_holds_a_labeled_keypoint(subtests: pytest.Subtests) -> None:
    for x, y, visible, kept in [
        (30, 30, 2, 1),
        (30, 30, 1, 1),
        (30, 30, 0, 0),
        (66, 76, 2, 1),
        (66.1, 30, 2, 0),
    ]:
        with subtests.test(x=x, y=y, visible=visible, kept=kept):
            assert (
                len(select_regions_with_keypoints(on_the_object(), one_point(x, y, visible)).boxes)
                == kept
            )


def test_equal_logits_cost_the_logarithm_of_the_positions() -> None:
    loss = keypoint_loss(
        torch.zeros(1, 17, 56, 56), [on_the_object()], [one_point(30.0, 30.0, 2.0)]
    )
    assert loss.item() == pytest.approx(math.log(56 * 56))


def test_the_right_position_costs_nothing() -> None:
    logits = torch.zeros(1, 17, 56, 56)
    logits[0, 3, 10, 20] = 100  # a box of 56 px: one position per px
    loss = keypoint_loss(logits, [on_the_object()], [one_point(30.5, 30.5, 2.0)])
    assert loss.item() == pytest.approx(0, abs=1e-5)  # logits of 100, whose eps is 8e-6


def test_a_peak_is_found_at_the_center_of_its_position() -> None:
    logits = torch.zeros(1, 17, 56, 56)
    logits[0, :, 10, 20] = 50
    points = peaks(logits, BOX)
    assert points[0, 5].tolist() == pytest.approx([30.5, 30.5, 1.0])


def test_a_box_of_other_size_stretches_the_map() -> None:
    logits = torch.zeros(1, 17, 56, 56)
    logits[0, :, 28, 14] = 50
    x, y, _ = peaks(logits, torch.tensor([[0.0, 0.0, 112.0, 28.0]]))[0, 0].tolist()
    assert (x, y) == pytest.approx((29, 14), abs=1)


def test_no_detection_has_no_keypoints() -> None:
    assert peaks(torch.zeros(0, 17, 56, 56), torch.zeros(0, 4)).shape == (0, 17, 3)
