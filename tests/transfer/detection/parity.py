"""Cases in which two engines are compared, and the differences of their answers."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tests.transfer.detection.fixed_detector import everything_sampled
from transfer.detection import recipe as recipes

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
    """Largest difference within a tensor, relative to the largest value of that tensor.

    Under the torchvision engine's names; both must have the same.
    """
    assert item.keys() == other.keys()
    return max(
        ((item[name] - other[name]).abs().max() / item[name].abs().max().clamp_min(1e-12)).item()
        for name in item
        if name != UNSEEN or max(item[name].abs().max(), other[name].abs().max()) > 1e-6
    )
