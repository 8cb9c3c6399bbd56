"""Regions: the boxes that the heads learn from, sampled among proposals and objects."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import box_iou

from transfer.detection.recipe import Recipe
from transfer.detection.sample import Sample
from transfer.detection.torchvision_engine.matching import OBJECT, drawn, match


@dataclass(frozen=True, kw_only=True, eq=False)
class Regions:
    """r boxes of one image and what they stand for."""

    boxes: Tensor
    """(r, 4)."""
    classes: Tensor
    """(r,) from 0; L, the number of classes, is background."""
    objects: Tensor
    """(r,): index of the matched object of the sample; 0 where that has none."""

    def of(self, chosen: Tensor) -> "Regions":
        """Those under a mask or at indices."""
        return Regions(
            boxes=self.boxes[chosen], classes=self.classes[chosen], objects=self.objects[chosen]
        )


@torch.no_grad()
def sampled_regions(proposals: Tensor, sample: Sample, recipe: Recipe, num_classes: int) -> Regions:
    """At most `roi_samples` of proposals (r, 4) and the objects themselves."""
    boxes = torch.cat([proposals, sample.boxes])
    objects, labels = match(
        box_iou(sample.boxes, boxes), below=recipe.roi_iou, above=recipe.roi_iou
    )
    positives, negatives = drawn(
        labels == OBJECT,
        labels != OBJECT,
        num_samples=recipe.roi_samples,
        positive_share=recipe.roi_positive_share,
    )
    chosen = torch.cat([positives, negatives])
    classes = torch.full_like(chosen, num_classes)
    classes[: len(positives)] = sample.classes[objects[positives]]
    return Regions(boxes=boxes[chosen], classes=classes, objects=objects[chosen])


def foreground(regions: Sequence[Regions], num_classes: int) -> list[Regions]:
    """Of each image, the regions that stand for an object."""
    return [each.of(each.classes < num_classes) for each in regions]
