"""Initialization of heads, and cases that the stored answers lack."""

import pytest
import torch
from torch import nn

from tests.transfer.detection.small_samples import small_samples
from transfer.detection.detector import Sample
from transfer.detection.recipe import COCO_FPN, COCO_FPN_MASKS
from transfer.detection.torchvision_engine.heads import (
    BoxPredictor,
    box_head,
    keypoint_loss,
    mask_head,
    select_detections,
    select_regions_with_keypoints,
)
from transfer.detection.torchvision_engine.regions import Regions

BOX = torch.tensor([[10.0, 20.0, 66.0, 76.0]])
ON_THE_OBJECT = Regions(boxes=BOX, classes=torch.tensor([0]), objects=torch.tensor([0]))


def test_predictors_start_near_zero() -> None:
    torch.manual_seed(0)
    boxes = BoxPredictor(1024, 80)
    masks = mask_head(COCO_FPN_MASKS, 80, nn.BatchNorm2d)[1]  # type: ignore[index]
    # of at least 20,480 draws, whose standard deviation is known to 0.5 %
    assert boxes.classes.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert boxes.deltas.weight.std().item() == pytest.approx(0.001, rel=0.02)
    assert masks.mask_fcn_logits.weight.std().item() == pytest.approx(0.001, rel=0.02)
    named = [*boxes.named_parameters(), *masks.named_parameters()]
    assert all(not bias.any() for name, bias in named if "bias" in name)


def test_layers_start_uniform_within_the_square_root_of_three_over_the_inputs() -> None:
    torch.manual_seed(0)
    first = box_head(COCO_FPN.tiny(), nn.BatchNorm2d)[1]  # type: ignore[index]
    # of 100,352 draws the largest is short of the bound by about 1e-5
    assert first.weight.abs().max().item() == pytest.approx((3 / (32 * 49)) ** 0.5, rel=1e-3)
    assert not first.bias.any()


def test_the_loss_of_keypoints_takes_maps_in_channels_last_as_on_gpus() -> None:
    maps = torch.randn(2, 17, 56, 56, generator=torch.Generator().manual_seed(0))
    points = torch.tensor([30.0, 40.0, 2.0]).expand(1, 17, 3)
    image = torch.zeros(3, 100, 100, dtype=torch.uint8)
    sample = Sample(image=image, boxes=BOX, classes=torch.tensor([0]), keypoints=points)
    losses = [
        keypoint_loss(maps.contiguous(memory_format=layout), [ON_THE_OBJECT] * 2, [sample] * 2)
        for layout in (torch.contiguous_format, torch.channels_last)
    ]
    assert losses[0] == losses[1] > 0


def test_what_is_not_finite_is_not_detected() -> None:
    proposals = torch.tensor([[0.0, 0, 10, 10], [50.0, 50, 70, 90]])
    logits = torch.tensor([[float("nan"), 0.0], [5.0, 0.0]])
    result = select_detections(logits, torch.zeros(2, 1, 4), proposals, (80, 60), COCO_FPN)
    assert result.boxes.tolist() == [[50, 50, 60, 80]]


def test_a_region_learns_if_it_holds_a_labeled_keypoint() -> None:
    cases = [(30, 30, 2, 1), (30, 30, 1, 1), (30, 30, 0, 0), (66, 76, 2, 1), (66.1, 30, 2, 0)]
    for x, y, visible, stored in cases:
        points = torch.zeros(1, 17, 3)
        points[0, 3] = torch.tensor([x, y, visible])
        image = small_samples(1)[0].image
        sample = Sample(image=image, boxes=BOX, classes=torch.tensor([0]), keypoints=points)
        assert len(select_regions_with_keypoints(ON_THE_OBJECT, sample).boxes) == stored, (
            x,
            visible,
        )
