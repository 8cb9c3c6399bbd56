"""Regions: sampling boxes to train the heads on, and RoIAlign."""

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
    """The r boxes of one image, with their classes and objects."""

    boxes: Tensor
    """Boxes (r, 4)."""
    classes: Tensor
    """Classes (r,), from 0; L (the number of classes) is background."""
    objects: Tensor
    """Index (r,) of the matched object; 0 without objects."""

    def select(self, mask: Tensor) -> "Regions":
        """Return the regions where a mask (r,) is true."""
        indices = mask.nonzero()[:, 0]  # indexing with a mask waits for the device each time
        return Regions(
            boxes=self.boxes[indices], classes=self.classes[indices], objects=self.objects[indices]
        )


@torch.no_grad()
def sample_regions(
    proposals: Tensor, sample: Sample, recipe: DetectorRecipe, num_classes: int
) -> Regions:
    """Sample at most `roi_samples` regions from proposals (r, 4) and object boxes."""
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
    indices = torch.cat([positives, negatives])
    classes = torch.full_like(indices, num_classes)
    classes[: len(positives)] = sample.classes[objects[positives]]
    return Regions(boxes=boxes[indices], classes=classes, objects=objects[indices])


MAX_LOG_SCALE = math.log(1000 / 16)
"""Upper limit of dw and dh, against overflow of their exponentials."""

Weights = tuple[float, float, float, float]


def encode(boxes: Tensor, targets: Tensor, weights: Weights) -> Tensor:
    """Return weighted deltas (r, 4) from boxes to targets (r, 4)."""
    sizes, target_sizes = boxes[:, 2:] - boxes[:, :2], targets[:, 2:] - targets[:, :2]
    centers, target_centers = boxes[:, :2] + 0.5 * sizes, targets[:, :2] + 0.5 * target_sizes
    weight_tensor = _on_device(weights, boxes)
    shifts = weight_tensor[:2] * (target_centers - centers) / sizes
    log_scales = weight_tensor[2:] * torch.log(target_sizes / sizes)
    return torch.cat([shifts, log_scales], dim=1)


def decode(boxes: Tensor, deltas: Tensor, weights: Weights) -> Tensor:
    """Apply weighted deltas (..., 4) to boxes (..., 4), in float32."""
    deltas = deltas.float() / _on_device(weights, boxes)
    sizes = boxes[..., 2:] - boxes[..., :2]
    centers = boxes[..., :2] + 0.5 * sizes
    centers = deltas[..., :2] * sizes + centers
    sizes = deltas[..., 2:].clamp(max=MAX_LOG_SCALE).exp() * sizes
    return torch.cat([centers - 0.5 * sizes, centers + 0.5 * sizes], dim=-1)


def _on_device(weights: Weights, boxes: Tensor) -> Tensor:
    """Return the weights (4,) with the dtype and device of the boxes.

    They are written on the device, since a copy from the CPU would wait for all earlier work.
    """
    return torch.stack([boxes.new_full((), weight) for weight in weights])


OBJECT, BACKGROUND, IGNORED = 1, 0, -1


def match(
    iou: Tensor, *, below: float, above: float, allow_low_quality_matches: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the best object (r,) of each box, and its label (r,).

    iou (m, r) with m objects. Labels are OBJECT, BACKGROUND or IGNORED; without objects, all are
    BACKGROUND.

    allow_low_quality_matches: also label the box with the highest IoU for each object as OBJECT,
    however small that IoU is.
    """
    if len(iou) == 0:
        zeros = iou.new_zeros(iou.shape[1], dtype=torch.int64)
        return zeros, zeros + BACKGROUND
    overlap, objects = iou.max(dim=0)
    labels = torch.full_like(objects, IGNORED)
    labels[overlap < below] = BACKGROUND
    labels[overlap >= above] = OBJECT
    if allow_low_quality_matches:
        # the object returned for such a box is still the one with which its own IoU is highest
        labels[(iou == iou.amax(dim=1, keepdim=True)).any(dim=0)] = OBJECT
    return objects, labels


def sample_positives_and_negatives(
    positive: Tensor, negative: Tensor, *, num_samples: int, positive_share: float
) -> tuple[Tensor, Tensor]:
    """Return the indices of random positives and negatives.

    positive and negative are masks (r,). At most `positive_share` of the samples are positive.
    torch's generator draws the two permutations in detectron2's order, so both engines draw equal
    samples for a seed.
    """
    positives, negatives = positive.nonzero()[:, 0], negative.nonzero()[:, 0]
    num_positives = min(len(positives), int(num_samples * positive_share))
    positive_order = torch.randperm(len(positives), device=positive.device)[:num_positives]
    negative_order = torch.randperm(len(negatives), device=negative.device)[
        : num_samples - num_positives
    ]
    return positives[positive_order], negatives[negative_order]


def pyramid_levels(boxes: Tensor, first_level: int, num_levels: int) -> Tensor:
    """Return the pyramid levels (r,) of boxes (r, 4), relative to `first_level`.

    Level k has a stride of 2^k px. Boxes of 224 px have level 4; a doubled size adds 1.
    """
    levels = torch.floor(4 + torch.log2(box_area(boxes).sqrt() / 224 + 1e-8))
    return levels.clamp(first_level, first_level + num_levels - 1).long() - first_level


def pool(
    maps: Sequence[Tensor], boxes: Sequence[Tensor], strides_px: Sequence[int], size: int
) -> Tensor:
    """Return pooled maps (r, C, size, size) of all boxes.

    maps: levels (n, C, H, W). boxes: one (r_i, 4) per image.
    """
    all_boxes = torch.cat(list(boxes))
    images = torch.cat([torch.full_like(b[:, :1], i) for i, b in enumerate(boxes)])
    regions = torch.cat([images, all_boxes], dim=1)
    if len(maps) == 1:
        return _roi_align(maps[0], regions, strides_px[0], size)
    levels = pyramid_levels(all_boxes, int(math.log2(strides_px[0])), len(maps))
    pooled = maps[0].new_zeros(len(all_boxes), maps[0].shape[1], size, size)
    for level, (features, stride_px) in enumerate(zip(maps, strides_px, strict=True)):
        indices = (levels == level).nonzero()[:, 0]
        pooled[indices] = _roi_align(features, regions[indices], stride_px, size)
    return pooled


def _roi_align(features: Tensor, regions: Tensor, stride_px: int, size: int) -> Tensor:
    # float32 even with autocast, since half precision rounds box coordinates by pixels
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
