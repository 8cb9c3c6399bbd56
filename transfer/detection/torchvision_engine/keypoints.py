"""Keypoints: one position in each of 17 maps within a box.

Mask R-CNN (He et al., ICCV 2017, arXiv:1703.06870), section 5.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.roi_heads import keypointrcnn_loss

from transfer.detection.sample import Sample
from transfer.detection.torchvision_engine.regions import Regions

NUM_KEYPOINTS = 17


def with_visible_keypoints(regions: Regions, sample: Sample) -> Regions:
    """Those regions on objects that hold a labeled keypoint of their object."""
    points = _keypoints(sample)[regions.objects]
    places = points[..., :2]
    inside = (places >= regions.boxes[:, None, :2]) & (places <= regions.boxes[:, None, 2:])
    return regions.of((inside.all(dim=2) & (points[..., 2] >= 1)).any(dim=1))


def keypoint_loss(logits: Tensor, regions: Sequence[Regions], samples: Sequence[Sample]) -> Tensor:
    """Cross-entropy over the positions of maps (r, 17, S, S), mean over visible keypoints."""
    loss: Tensor = keypointrcnn_loss(
        logits.float(),
        [each.boxes for each in regions],
        [_keypoints(sample) for sample in samples],
        [each.objects for each in regions],
    )
    return loss


def _keypoints(sample: Sample) -> Tensor:
    if sample.keypoints is None:
        raise ValueError("a sample without keypoints was given to a detector that learns them")
    return sample.keypoints


def peaks(logits: Tensor, boxes: Tensor) -> Tensor:
    """x, y and score (k, 17, 3) of the highest position of maps (k, 17, S, S) in boxes (k, 4), px.

    The score is the peak's exponential over the sum of the map's: of other sizes comparable.
    """
    logits = logits.float()
    sides = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1)
    whole = sides.ceil()
    places, heights = [], []
    for maps, (width, height) in zip(logits, whole.int().tolist(), strict=True):
        large = F.interpolate(
            maps[None], size=(height, width), mode="bicubic", align_corners=False
        )[0]
        top, position = large.flatten(1).max(dim=1)
        places.append(torch.stack([position % width, position // width], dim=1))
        heights.append(top)
    if not places:
        return logits.new_zeros(0, NUM_KEYPOINTS, 3)
    factors = (sides / whole)[:, None]
    xy = (torch.stack(places) + 0.5) * factors + boxes[:, None, :2]
    top = torch.stack(heights)
    scores = 1 / (logits - top[..., None, None]).exp().sum(dim=(2, 3))
    return torch.cat([xy, scores[..., None]], dim=2)
