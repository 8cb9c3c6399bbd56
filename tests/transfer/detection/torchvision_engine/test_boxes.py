"""Losses and detections of boxes, against numbers known without them."""

import math
from dataclasses import replace

import pytest
import torch

from tests.transfer.detection.small_samples import small_samples
from transfer.detection.recipe import COCO_FPN
from transfer.detection.torchvision_engine.boxes import box_losses, select_detections
from transfer.detection.torchvision_engine.regions import Regions

CLASSES = 4


def on_object_and_beside() -> Regions:
    """One region on the first object, 4.8 px (a tenth) to its left, and three on background."""
    object_box = torch.tensor([8.0, 12.0, 56.0, 70.0])
    shifted = object_box - torch.tensor([4.8, 0.0, 4.8, 0.0])
    return Regions(
        boxes=torch.stack([shifted, *torch.rand(3, 4).cumsum(dim=1)]),
        classes=torch.tensor([0, CLASSES, CLASSES, CLASSES]),
        objects=torch.zeros(4, dtype=torch.int64),
    )


def test_losses_are_means_over_all_regions() -> None:
    sample = small_samples(1, num_classes=CLASSES)[0]
    losses = box_losses(
        torch.zeros(4, CLASSES + 1),
        torch.zeros(4, CLASSES, 4),
        [on_object_and_beside()],
        [sample],
        COCO_FPN,
    )
    assert losses["loss_cls"].item() == pytest.approx(math.log(CLASSES + 1))
    # px up to 56, of whose differences 4.8 is left: 12 times the eps of float32 for each operation
    assert losses["loss_box_reg"].item() == pytest.approx(10 * 0.1 / 4, rel=1e-5)


def test_within_beta_the_distance_is_squared() -> None:
    sample = small_samples(1, num_classes=CLASSES)[0]
    deltas = torch.zeros(4, CLASSES, 4)
    deltas[0, 0, 0] = 0.8  # of 1: a distance of 0.2
    regions, recipe = [on_object_and_beside()], replace(COCO_FPN, box_smooth_l1_beta=0.5)
    losses = box_losses(torch.zeros(4, CLASSES + 1), deltas, regions, [sample], recipe)
    # 1 - 0.8 enlarges the 1e-5 of the test above by 5, its square by 10
    assert losses["loss_box_reg"].item() == pytest.approx(0.5 * 0.2**2 / 0.5 / 4, rel=1e-4)


def test_only_the_deltas_of_the_own_class_are_learned() -> None:
    sample = small_samples(1, num_classes=CLASSES)[0]
    deltas = torch.zeros(4, CLASSES, 4, requires_grad=True)
    losses = box_losses(
        torch.zeros(4, CLASSES + 1), deltas, [on_object_and_beside()], [sample], COCO_FPN
    )
    losses["loss_box_reg"].backward()
    assert deltas.grad is not None
    assert deltas.grad.nonzero()[:, :2].unique(dim=0).tolist() == [[0, 0]]


def test_one_proposal_may_be_two_classes_and_doubles_of_a_class_are_dropped() -> None:
    proposals = torch.tensor([[0.0, 0, 10, 10], [0.0, 0, 10, 11], [50.0, 50, 70, 90]])
    scores = torch.tensor([[0.5, 0.4, 0.1], [0.6, 0.01, 0.39], [0.02, 0.01, 0.97]])
    found = select_detections(scores.log(), torch.zeros(3, 2, 4), proposals, (60, 60), COCO_FPN)
    assert found.classes.tolist() == [0, 1]
    assert found.scores.tolist() == pytest.approx([0.6, 0.4])
    assert found.boxes.tolist() == [[0, 0, 10, 11], [0, 0, 10, 10]]


def test_boxes_end_at_the_image_and_what_is_not_finite_is_dropped() -> None:
    proposals = torch.tensor([[0.0, 0, 10, 10], [50.0, 50, 70, 90]])
    logits = torch.tensor([[float("nan"), 0.0], [5.0, 0.0]])
    found = select_detections(logits, torch.zeros(2, 1, 4), proposals, (80, 60), COCO_FPN)
    assert found.boxes.tolist() == [[50, 50, 60, 80]]
