"""How heads are made and how they start."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from transfer.detection.recipe import COCO_4CONV1FC, COCO_FPN, COCO_FPN_MASKS, DetectorRecipe, Part
from transfer.detection.torchvision_engine.heads import (
    BoxPredictor,
    box_head,
    keypoint_head,
    mask_head,
)


def num_norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


@pytest.mark.parametrize(
    ("recipe", "norms"),
    [(COCO_FPN, 0), (COCO_4CONV1FC, 4), (replace(COCO_4CONV1FC, normed=()), 0)],
)
def test_a_box_head_gives_its_features_and_has_a_norm_per_convolution(
    recipe: DetectorRecipe, norms: int
) -> None:
    head, num_features = box_head(recipe.tiny(), nn.BatchNorm2d)
    assert head(torch.zeros(2, 32, 7, 7)).shape == (2, num_features) == (2, 64)
    assert num_norms(head) == norms


def test_a_box_head_without_layers_hands_its_convolutions_on() -> None:
    recipe = replace(COCO_4CONV1FC.tiny(), box_head_fcs=0)
    head, num_features = box_head(recipe, nn.BatchNorm2d)
    assert head(torch.zeros(2, 32, 7, 7)).shape == (2, num_features) == (2, 32 * 49)


@pytest.mark.parametrize(("normed", "norms"), [((), 0), (("mask_head",), 4)])
def test_a_mask_head_doubles_its_map(normed: tuple[Part, ...], norms: int) -> None:
    recipe = replace(COCO_FPN_MASKS.tiny(), normed=normed)
    head = mask_head(recipe, 5, nn.BatchNorm2d)
    assert head(torch.zeros(2, 32, 14, 14)).shape == (2, 5, 28, 28)
    assert num_norms(head) == norms


@pytest.mark.parametrize(("normed", "norms"), [((), 0), (("keypoint_head",), 8)])
def test_a_keypoint_head_quadruples_its_map(normed: tuple[Part, ...], norms: int) -> None:
    head = keypoint_head(replace(COCO_FPN.tiny(), normed=normed), nn.BatchNorm2d)
    assert head(torch.zeros(2, 32, 14, 14)).shape == (2, 17, 56, 56)
    assert num_norms(head) == norms


def test_predictors_start_near_zero() -> None:
    torch.manual_seed(0)
    boxes = BoxPredictor(1024, 80)
    masks = mask_head(COCO_FPN_MASKS, 80, nn.BatchNorm2d)[1]  # type: ignore[index]
    # of at least 20,480 draws, whose standard deviation is known to 0.5 %
    assert boxes.classes.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert boxes.deltas.weight.std().item() == pytest.approx(0.001, rel=0.02)
    assert masks.mask_fcn_logits.weight.std().item() == pytest.approx(0.001, rel=0.02)
    assert all(
        not b.any()
        for n, b in [*boxes.named_parameters(), *masks.named_parameters()]
        if "bias" in n
    )


def test_layers_start_uniform_within_the_square_root_of_three_over_the_inputs() -> None:
    torch.manual_seed(0)
    first = box_head(COCO_FPN.tiny(), nn.BatchNorm2d)[0][1]  # type: ignore[index]
    # of 100,352 draws the largest is short of the bound by about 1e-5
    assert first.weight.abs().max().item() == pytest.approx((3 / (32 * 49)) ** 0.5, rel=1e-3)
    assert not first.bias.any()
