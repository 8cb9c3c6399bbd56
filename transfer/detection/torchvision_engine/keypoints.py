"""Loss and positions of keypoints: one position in each of 17 maps within a box.

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


def select_regions_with_keypoints(regions: Regions, sample: Sample) -> Regions:
    """Return the regions that contain a labeled keypoint of their object."""
    points = _keypoints(sample)[regions.objects]
    places = points[..., :2]
    inside = (places >= regions.boxes[:, None, :2]) & (places <= regions.boxes[:, None, 2:])
    return regions.select((inside.all(dim=2) & (points[..., 2] >= 1)).any(dim=1))


def keypoint_loss(logits: Tensor, regions: Sequence[Regions], samples: Sequence[Sample]) -> Tensor:
    """Return the mean cross-entropy of labeled keypoints over the positions of (r, 17, S, S)."""
    loss: Tensor = keypointrcnn_loss(
        logits.float(),
        [each.boxes for each in regions],
        [_keypoints(sample) for sample in samples],
        [each.objects for each in regions],
    )
    return loss


def _keypoints(sample: Sample) -> Tensor:
    if sample.keypoints is None:
        raise ValueError(
            f"this detector learns keypoints, and a sample with {len(sample.boxes)} objects has "
            f"none"
        )
    return sample.keypoints


def peaks(logits: Tensor, boxes: Tensor) -> Tensor:
    """Return x, y in px and score (k, 17, 3) of the peak of each map (k, 17, S, S) in boxes (k, 4).

    The score is the exponential of the peak over the sum of exponentials of the S x S map, so that
    boxes of different sizes can be compared.
    """
    logits = logits.float()
    sides = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1)
    # as in detectron2: each map is resized to whole px, and its peak scaled back to the box
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
