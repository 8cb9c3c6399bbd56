"""Regions: the boxes that the heads learn from, sampled among proposals and objects; RoIAlign."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import box_area, box_iou, roi_align

from transfer.detection.detector import Sample
from transfer.detection.recipe import DetectorRecipe


@dataclass(frozen=True, kw_only=True, eq=False)
class Regions:
    """A set of r boxes of one image with their classes and objects."""

    boxes: Tensor
    """Boxes (r, 4)."""
    classes: Tensor
    """Classes (r,), from 0; L, the number of classes, is background."""
    objects: Tensor
    """Index (r,) of the matched object of the sample; 0 where the sample has no object."""

    def select(self, mask: Tensor) -> "Regions":
        """Return the regions where a mask (r,) is true."""
        chosen = mask.nonzero()[:, 0]  # indexing by the mask would wait for the device each time
        return Regions(
            boxes=self.boxes[chosen], classes=self.classes[chosen], objects=self.objects[chosen]
        )


@torch.no_grad()
def sample_regions(
    proposals: Tensor, sample: Sample, recipe: DetectorRecipe, num_classes: int
) -> Regions:
    """Return at most `roi_samples` regions of the proposals (r, 4) and the objects' own boxes."""
    boxes = torch.cat([proposals, sample.boxes])
    objects, labels = match(
        box_iou(sample.boxes, boxes), below=recipe.roi_iou, above=recipe.roi_iou
    )
    positives, negatives = sample_positives_and_negatives(
        labels == OBJECT,
        labels != OBJECT,
        num_samples=recipe.roi_samples,
        positive_share=recipe.roi_positive_share,
    )
    chosen = torch.cat([positives, negatives])
    classes = torch.full_like(chosen, num_classes)
    classes[: len(positives)] = sample.classes[objects[positives]]
    return Regions(boxes=boxes[chosen], classes=classes, objects=objects[chosen])


LARGEST_GROWTH = math.log(1000 / 16)
"""Upper limit of dw and dh, so that an extreme prediction does not overflow."""

Weights = tuple[float, float, float, float]


def encode(boxes: Tensor, goals: Tensor, weights: Weights) -> Tensor:
    """Return deltas (r, 4) from boxes (r, 4) to goals (r, 4), times the weights."""
    sizes, goal_sizes = boxes[:, 2:] - boxes[:, :2], goals[:, 2:] - goals[:, :2]
    centers, goal_centers = boxes[:, :2] + 0.5 * sizes, goals[:, :2] + 0.5 * goal_sizes
    factors = _on_device(weights, boxes)
    shifts = factors[:2] * (goal_centers - centers) / sizes
    growths = factors[2:] * torch.log(goal_sizes / sizes)
    return torch.cat([shifts, growths], dim=1)


def decode(boxes: Tensor, deltas: Tensor, weights: Weights) -> Tensor:
    """Return boxes (..., 4) moved by deltas (..., 4), always in float32."""
    deltas = deltas.float() / _on_device(weights, boxes)
    sizes = boxes[..., 2:] - boxes[..., :2]
    centers = boxes[..., :2] + 0.5 * sizes
    centers = deltas[..., :2] * sizes + centers
    sizes = deltas[..., 2:].clamp(max=LARGEST_GROWTH).exp() * sizes
    return torch.cat([centers - 0.5 * sizes, centers + 0.5 * sizes], dim=-1)


def _on_device(weights: Weights, boxes: Tensor) -> Tensor:
    """Return the weights (4,) in the type of the boxes, written by the device itself.

    A copy of them would wait for all work that the device has been given before.
    """
    return torch.stack([boxes.new_full((), weight) for weight in weights])


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


def pyramid_levels(boxes: Tensor, first_level: int, num_levels: int) -> Tensor:
    """Return the pyramid level (r,) of boxes (r, 4), counted from 0 for `first_level`.

    Level k has a stride of 2^k px. Boxes of 224 px get level 4, each doubling one more.
    """
    levels = torch.floor(4 + torch.log2(box_area(boxes).sqrt() / 224 + 1e-8))
    return levels.clamp(first_level, first_level + num_levels - 1).long() - first_level


def pool(
    maps: Sequence[Tensor], boxes: Sequence[Tensor], strides_px: Sequence[int], size: int
) -> Tensor:
    """Return pooled maps (r, C, size, size) of boxes, n of (r_i, 4), on levels (n, C, H, W)."""
    every = torch.cat(list(boxes))
    images = torch.cat([torch.full_like(b[:, :1], i) for i, b in enumerate(boxes)])
    regions = torch.cat([images, every], dim=1)
    if len(maps) == 1:
        return _roi_align(maps[0], regions, strides_px[0], size)
    levels = pyramid_levels(every, int(math.log2(strides_px[0])), len(maps))
    pooled = maps[0].new_zeros(len(every), maps[0].shape[1], size, size)
    for level, (features, stride_px) in enumerate(zip(maps, strides_px, strict=True)):
        chosen = (levels == level).nonzero()[:, 0]
        pooled[chosen] = _roi_align(features, regions[chosen], stride_px, size)
    return pooled


def _roi_align(features: Tensor, regions: Tensor, stride_px: int, size: int) -> Tensor:
    # float32 also under autocast: half precision would move the boxes by pixels
    dtype = torch.promote_types(features.dtype, regions.dtype)
    pooled: Tensor = roi_align(
        features.to(dtype),
        regions.to(dtype),
        size,
        spatial_scale=1 / stride_px,
        sampling_ratio=0,
        aligned=True,
    )
    return pooled.to(features.dtype)
