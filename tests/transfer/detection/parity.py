"""Cases for comparing two engines, and the differences of their answers."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tests.transfer.detection.fixed_detector import everything_sampled
from transfer.detection import recipe as recipes

NUM_CLASSES = 3

EPS = torch.finfo(torch.float32).eps
LOSS = 16 * EPS
"""Relative error of a loss, a sum of thousands of float32 terms."""
GRADIENT = 64 * EPS
"""Error relative to a tensor's norm or largest value.

The loss passes float32 gradients on, which norm layers enlarge.
"""
BOX_PX = 12 * 128 * EPS
"""Error of boxes and keypoints in px.

About twelve float32 operations on values up to 128 px.
"""
SCORE = 8 * EPS
"""Error of scores and mask probabilities, which are at most 1."""

UNSEEN = "keypoint_head.1.kps_score_lowres.bias"
"""A bias that the softmax over positions ignores: its gradient is 0."""


CASES = {
    "fpn boxes": everything_sampled(recipes.COCO_FPN),
    "fpn masks": everything_sampled(recipes.COCO_FPN_MASKS),
    "fpn keypoints": everything_sampled(recipes.COCO_FPN_KEYPOINTS),
    "4conv1fc boxes": everything_sampled(recipes.COCO_4CONV1FC),
    "4conv1fc masks": everything_sampled(recipes.COCO_4CONV1FC_MASKS),
    "c4": everything_sampled(recipes.VOC_C4_NONE),
    "c4 moco": everything_sampled(recipes.VOC_C4_MOCO),
    "c4 co2": everything_sampled(recipes.VOC_C4),
    "keypoints all norms": replace(
        everything_sampled(recipes.COCO_FPN_KEYPOINTS),
        normed=("fpn", "box_head", "keypoint_head", "rpn_head"),
        box_head_convs=2,
    ),
}
"""Detectors whose engines are compared."""


def worst_tensor(item: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Return the largest difference within a tensor, relative to its largest value.

    Names are those of the torchvision engine. Both must have the same names.
    """
    assert item.keys() == other.keys()
    return max(
        ((item[name] - other[name]).abs().max() / item[name].abs().max().clamp_min(1e-12)).item()
        for name in item
        if name != UNSEEN or max(item[name].abs().max(), other[name].abs().max()) > 1e-6
    )
