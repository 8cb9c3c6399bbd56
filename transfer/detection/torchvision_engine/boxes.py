"""Losses of the box head in training, and its detections in the test.

Fast R-CNN (Girshick, ICCV 2015, arXiv:1504.08083).
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.ops import batched_nms, clip_boxes_to_image

from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import ResizedDetections, Sample
from transfer.detection.torchvision_engine.regions import Regions, decode, encode


def box_losses(
    logits: Tensor,
    deltas: Tensor,
    regions: Sequence[Regions],
    samples: Sequence[Sample],
    recipe: DetectorRecipe,
) -> dict[str, Tensor]:
    """Return loss_cls and loss_box_reg, means over all r regions of all images.

    logits (r, L + 1), background last; deltas (r, L, 4). The box loss, too, is divided by all r,
    though only regions on objects have one.
    """
    logits, deltas = logits.float(), deltas.float()
    classes = torch.cat([each.classes for each in regions])
    if len(classes) == 0:
        # losses of 0 that reach all parameters, as a training on several GPUs needs them
        return {"loss_cls": logits.sum() * 0, "loss_box_reg": deltas.sum() * 0}
    on_object = (classes < deltas.shape[1]).nonzero()[:, 0]
    boxes = torch.cat([each.boxes for each in regions])[on_object]
    goals = [
        # a placeholder where the image has no object, since none of its regions is on one
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


def select_detections(
    logits: Tensor, deltas: Tensor, proposals: Tensor, size: tuple[int, int], recipe: DetectorRecipe
) -> ResizedDetections:
    """Return the detections in one image of size (height, width).

    logits (r, L + 1), deltas (r, L, 4). A proposal (r, 4) gives a detection for every class above
    the least score.
    """
    boxes = decode(proposals[:, None], deltas, recipe.box_weights)
    scores = logits.float().softmax(dim=1)
    # places, since indexing by a mask waits for the device each time
    finite = (boxes.isfinite().all(dim=2).all(dim=1) & scores.isfinite().all(dim=1)).nonzero()[:, 0]
    boxes, scores = clip_boxes_to_image(boxes[finite], size), scores[finite, :-1]
    rows, classes = (scores > recipe.min_score).nonzero().unbind(dim=1)
    boxes, scores = boxes[rows, classes], scores[rows, classes]
    best = batched_nms(boxes, scores, classes, recipe.nms_iou)[: recipe.detections]
    return ResizedDetections(boxes=boxes[best], scores=scores[best], classes=classes[best])
