"""What the heads say about boxes: class and place, in training and test.

Fast R-CNN (Girshick, ICCV 2015, arXiv:1504.08083).
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.ops import batched_nms, clip_boxes_to_image

from transfer.detection.recipe import Recipe
from transfer.detection.sample import Found, Sample
from transfer.detection.torchvision_engine.coding import decode, encode
from transfer.detection.torchvision_engine.regions import Regions


def box_losses(
    logits: Tensor,
    deltas: Tensor,
    regions: Sequence[Regions],
    samples: Sequence[Sample],
    recipe: Recipe,
) -> dict[str, Tensor]:
    """logits (r, L + 1), the last for background, deltas (r, L, 4), of all regions of all images.

    Both are means over all regions, though only those on objects have a place to learn.
    """
    logits, deltas = logits.float(), deltas.float()
    classes = torch.cat([each.classes for each in regions])
    if len(classes) == 0:
        return {"loss_cls": logits.sum() * 0, "loss_box_reg": deltas.sum() * 0}
    on_object = (classes < deltas.shape[1]).nonzero()[:, 0]
    boxes = torch.cat([each.boxes for each in regions])[on_object]
    goals = [
        # a placeholder where the image has no object: none of its regions is on one
        sample.boxes[each.objects] if len(sample.boxes) else each.boxes
        for sample, each in zip(samples, regions, strict=True)
    ]
    distance = F.smooth_l1_loss(
        deltas[on_object, classes[on_object]],
        encode(boxes, torch.cat(goals)[on_object], recipe.box_weights),
        beta=recipe.box_smooth_l1_beta,
        reduction="sum",
    )
    return {
        "loss_cls": F.cross_entropy(logits, classes),
        "loss_box_reg": distance / len(classes),
    }


def found_boxes(
    logits: Tensor, deltas: Tensor, proposals: Tensor, size: tuple[int, int], recipe: Recipe
) -> Found:
    """Detections in one image of size (height, width): each proposal (r, 4) may be several.

    logits (r, L + 1), deltas (r, L, 4).
    """
    boxes = decode(proposals[:, None], deltas, recipe.box_weights)
    scores = logits.float().softmax(dim=1)
    finite = boxes.isfinite().all(dim=2).all(dim=1) & scores.isfinite().all(dim=1)
    boxes, scores = clip_boxes_to_image(boxes[finite], size), scores[finite, :-1]
    good = scores > recipe.min_score
    classes = good.nonzero()[:, 1]
    boxes, scores = boxes[good], scores[good]
    best = batched_nms(boxes, scores, classes, recipe.nms_iou)[: recipe.detections]
    return Found(boxes=boxes[best], scores=scores[best], classes=classes[best])
