"""Matching of boxes to objects, and sampling of the boxes for a loss."""

import torch
from torch import Tensor

OBJECT, BACKGROUND, NEITHER = 1, 0, -1


def match(
    iou: Tensor, *, below: float, above: float, best_too: bool = False
) -> tuple[Tensor, Tensor]:
    """Return for r boxes the object (r,) that each overlaps most, and its label (r,).

    iou (m, r) with m objects; labels are OBJECT, BACKGROUND or NEITHER, all background for m = 0.
    best_too: the boxes that overlap an object most are labeled OBJECT however small the overlap.
    """
    if len(iou) == 0:
        zeros = iou.new_zeros(iou.shape[1], dtype=torch.int64)
        return zeros, zeros + BACKGROUND
    overlap, objects = iou.max(dim=0)
    labels = torch.full_like(objects, NEITHER)
    labels[overlap < below] = BACKGROUND
    labels[overlap >= above] = OBJECT
    if best_too:
        # such a box keeps the object that it overlaps most, which may be another one
        labels[(iou == iou.amax(dim=1, keepdim=True)).any(dim=0)] = OBJECT
    return objects, labels


def sample_positives_and_negatives(
    positive: Tensor, negative: Tensor, *, num_samples: int, positive_share: float
) -> tuple[Tensor, Tensor]:
    """Return indices of a random sample: positives up to their share, then negatives.

    positive and negative are masks (r,). The two permutations are drawn from torch's generator in
    detectron2's order, so that the same seed gives the same sample.
    """
    positives, negatives = positive.nonzero()[:, 0], negative.nonzero()[:, 0]
    num_positives = min(len(positives), int(num_samples * positive_share))
    some = torch.randperm(len(positives), device=positive.device)[:num_positives]
    others = torch.randperm(len(negatives), device=negative.device)[: num_samples - num_positives]
    return positives[some], negatives[others]
