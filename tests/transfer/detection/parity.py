"""Cases in which two engines are compared, and the differences of their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tests.transfer.detection.fixed_detector import everything_sampled
from transfer.detection import recipe as recipes
from transfer.detection.detector import ResizedDetections
from transfer.detection.recipe import DetectorRecipe

NUM_CLASSES = 3

EPS = torch.finfo(torch.float32).eps
LOSS = 16 * EPS
"""Relative error of a loss: a sum of some thousand terms in float32."""
GRADIENT = 64 * EPS
"""Error in units of a tensor's norm or largest value: a loss sends float32, which norms enlarge."""
BOX_PX = 12 * 128 * EPS
"""Error of boxes and keypoints in px: a dozen operations in float32 on up to 128 px."""
SCORE = 8 * EPS
"""Error of scores and mask probabilities, which are at most 1: some operations in float32."""

UNSEEN = "keypoint_head.1.kps_score_lowres.bias"
"""Adds one number to a whole map, which the softmax over its places ignores: gradient 0."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One detector whose engines are compared."""

    recipe: DetectorRecipe
    arch: str = "resnet18"


FPN = everything_sampled(recipes.COCO_FPN)
CO2 = everything_sampled(recipes.VOC_C4)

CASES = {
    "fpn boxes": Case(recipe=FPN, arch="resnet50"),
    "fpn masks": Case(recipe=everything_sampled(recipes.COCO_FPN_MASKS), arch="resnet50"),
    "fpn keypoints": Case(recipe=everything_sampled(recipes.COCO_FPN_KEYPOINTS), arch="resnet50"),
    "4conv1fc boxes": Case(recipe=everything_sampled(recipes.COCO_4CONV1FC), arch="resnet50"),
    "4conv1fc masks": Case(recipe=everything_sampled(recipes.COCO_4CONV1FC_MASKS), arch="resnet50"),
    "c4": Case(recipe=everything_sampled(recipes.VOC_C4_NONE), arch="resnet50"),
    "c4 moco": Case(recipe=everything_sampled(recipes.VOC_C4_MOCO), arch="resnet50"),
    "c4 co2": Case(recipe=CO2, arch="resnet50"),
    "fpn boxes resnet18": Case(recipe=FPN),
    "c4 co2 resnet18": Case(recipe=CO2),
    "keypoints all norms": Case(
        recipe=replace(
            everything_sampled(recipes.COCO_FPN_KEYPOINTS),
            normed=("fpn", "box_head", "keypoint_head", "rpn_head"),
            box_head_convs=2,
        )
    ),
}


def worst_loss(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Largest relative difference; both must have the same losses."""
    assert one.keys() == other.keys()
    return max(
        (abs(one[name] - other[name]) / abs(one[name]).clamp_min(1e-12)).item() for name in one
    )


def worst_tensor(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Largest difference within a tensor, relative to the largest value of that tensor.

    Under the torchvision engine's names; both must have the same.
    """
    assert one.keys() == other.keys()
    return max(
        ((one[name] - other[name]).abs().max() / one[name].abs().max().clamp_min(1e-12)).item()
        for name in one
        if name != UNSEEN or max(one[name].abs().max(), other[name].abs().max()) > 1e-6
    )


def worst_found(
    one: Sequence[ResizedDetections], other: Sequence[ResizedDetections]
) -> dict[str, float]:
    """Largest differences of boxes and keypoints (px), scores and masks; classes must be equal."""
    worst: dict[str, float] = {}
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine.classes, theirs.classes)
        for name in ("boxes", "scores", "masks", "keypoints"):
            a, b = getattr(mine, name), getattr(theirs, name)
            assert (a is None) == (b is None)
            if a is not None and len(a):
                worst[name] = max(worst.get(name, 0.0), (a - b).abs().max().item())
    return worst
