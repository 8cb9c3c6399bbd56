"""Regions: the boxes that the heads learn from, sampled among proposals and objects."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import box_iou

from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Sample
from transfer.detection.torchvision_engine.matching import (
    OBJECT,
    match,
    sample_positives_and_negatives,
)


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


def select_foreground(regions: Sequence[Regions], num_classes: int) -> list[Regions]:
    """Return the regions of each image that are on an object."""
    return [each.select(each.classes < num_classes) for each in regions]
