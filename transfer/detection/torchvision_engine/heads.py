"""Heads for boxes, masks and keypoints, on pooled maps.

Initial weights have detectron2's distributions. torchvision's blocks agree only for convolutions,
so all other layers are initialized again here.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from pycocotools import mask
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import keypointrcnn_loss
from torchvision.ops import batched_nms, clip_boxes_to_image

from transfer.detection.detector import Polygons, ResizedDetections, Sample
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.torchvision_engine.regions import Regions, decode, encode

NUM_KEYPOINTS = 17


def select_regions_with_keypoints(regions: Regions, sample: Sample) -> Regions:
    """Return the regions that contain a labeled keypoint of their object."""
    points = cast("Tensor", sample.keypoints)[regions.objects]
    positions = points[..., :2]
    is_inside = (positions >= regions.boxes[:, None, :2]) & (
        positions <= regions.boxes[:, None, 2:]
    )
    return regions.select((is_inside.all(dim=2) & (points[..., 2] >= 1)).any(dim=1))


def keypoint_loss(logits: Tensor, regions: Sequence[Regions], samples: Sequence[Sample]) -> Tensor:
    """Return the mean cross-entropy of labeled keypoints.

    logits (r, 17, S, S): the softmax is over positions.
    """
    loss: Tensor = keypointrcnn_loss(
        logits.float().contiguous(),  # torchvision calls .view
        [image_regions.boxes for image_regions in regions],
        [cast("Tensor", sample.keypoints) for sample in samples],
        [image_regions.objects for image_regions in regions],
    )
    return loss


def peaks(logits: Tensor, boxes: Tensor) -> Tensor:
    """Return the maximum of each map.

    Results (k, 17, 3) are x, y in px and score. logits (k, 17, S, S) in boxes (k, 4). The score is
    the exponential of the maximum, divided by the sum of exponentials of the S x S map, so that
    boxes of different sizes can be compared.
    """
    logits = logits.float()
    sides = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1)
    # as in detectron2: resize each map to integer px, and scale the maximum back to the box
    integer_sides = sides.ceil()
    positions, maxima = [], []
    for maps, (width, height) in zip(logits, integer_sides.int().tolist(), strict=True):
        resized = F.interpolate(
            maps[None], size=(height, width), mode="bicubic", align_corners=False
        )[0]
        maximum, position = resized.flatten(1).max(dim=1)
        positions.append(torch.stack([position % width, position // width], dim=1))
        maxima.append(maximum)
    if not positions:
        return logits.new_zeros(0, NUM_KEYPOINTS, 3)
    factors = (sides / integer_sides)[:, None]
    xy = (torch.stack(positions) + 0.5) * factors + boxes[:, None, :2]
    maximum = torch.stack(maxima)
    scores = 1 / (logits - maximum[..., None, None]).exp().sum(dim=(2, 3))
    return torch.cat([xy, scores[..., None]], dim=2)


NormLayer = Callable[[int], nn.Module]


class BoxPredictor(nn.Module):
    """Predictor of classes and box deltas; the last class is background."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.classes = nn.Linear(num_features, num_classes + 1)
        self.deltas = nn.Linear(num_features, num_classes * 4)
        nn.init.normal_(self.classes.weight, std=0.01)
        nn.init.normal_(self.deltas.weight, std=0.001)
        nn.init.zeros_(self.classes.bias)
        nn.init.zeros_(self.deltas.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (r, L+1) and deltas (r, L, 4) of features (r, C)."""
        return self.classes(features), self.deltas(features).unflatten(1, (-1, 4))


def box_head(recipe: DetectorRecipe, norm: NormLayer) -> nn.Module:
    """Return the box head (fpn), (r, C, box_pool, box_pool) -> (r, box_head_fc_channels)."""
    head: nn.Module = FastRCNNConvFCHead(
        (recipe.fpn_channels, recipe.box_pool, recipe.box_pool),
        [recipe.box_head_conv_channels] * recipe.box_head_convs,
        [recipe.box_head_fc_channels] * recipe.box_head_fcs,
        norm_layer=norm if "box_head" in recipe.normed else None,
    )
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=1)
            nn.init.zeros_(layer.bias)
    return head


def mask_head(recipe: DetectorRecipe, num_classes: int, norm: NormLayer) -> nn.Module:
    """Return the mask head, (r, C, 14, 14) -> (r, L, 28, 28)."""
    channels = recipe.mask_head_channels
    convolutions = MaskRCNNHeads(
        recipe.fpn_channels,
        [channels] * 4,
        1,
        norm_layer=norm if "mask_head" in recipe.normed else None,
    )
    predictor = MaskRCNNPredictor(channels, channels, num_classes)
    nn.init.normal_(predictor.mask_fcn_logits.weight, std=0.001)
    nn.init.zeros_(predictor.mask_fcn_logits.bias)
    nn.init.zeros_(predictor.conv5_mask.bias)
    return nn.Sequential(convolutions, predictor)


def keypoint_head(recipe: DetectorRecipe, norm: NormLayer) -> nn.Module:
    """Return the keypoint head, (r, C, 14, 14) -> (r, 17, 56, 56)."""
    channels = recipe.keypoint_head_channels
    # torchvision's mask block, since its keypoint block supports no norm layers
    convolutions = MaskRCNNHeads(
        recipe.fpn_channels,
        [channels] * 8,
        1,
        norm_layer=norm if "keypoint_head" in recipe.normed else None,
    )
    return nn.Sequential(convolutions, KeypointRCNNPredictor(channels, NUM_KEYPOINTS))


def mask_loss(logits: Tensor, regions: Sequence[Regions], samples: Sequence[Sample]) -> Tensor:
    """Return the mean cross-entropy over the pixels of each region's class.

    logits (r, L, S, S).
    """
    logits = logits.float()
    if len(logits) == 0:
        # a zero loss with gradients for all parameters, which distributed training needs
        return logits.sum() * 0
    polygons: list[Polygons] = []
    for sample, image_regions in zip(samples, regions, strict=True):
        outlines = cast("tuple[Polygons, ...]", sample.polygons)
        polygons += [outlines[i] for i in image_regions.objects.tolist()]
    targets = mask_targets(
        torch.cat([image_regions.boxes for image_regions in regions]), polygons, logits.shape[-1]
    )
    classes = torch.cat([image_regions.classes for image_regions in regions])
    return F.binary_cross_entropy_with_logits(select_class(logits, classes), targets)


def mask_targets(boxes: Tensor, polygons: Sequence[Polygons], size: int) -> Tensor:
    """Return binary targets (r, size, size): polygons, cropped to boxes (r, 4).

    r > 0, and each object has an outline.
    """
    corners: NDArray[np.float32] = boxes.detach().cpu().numpy()
    # detectron2's minimum side of 0.1 px, against division by zero
    sides = np.maximum(corners[:, 2:] - corners[:, :2], np.float32(0.1))
    factors = np.float32(size) / sides
    codes = []
    for corner, factor, outlines in zip(corners, factors, polygons, strict=True):
        outlines_in_box = [((o.reshape(-1, 2) - corner[:2]) * factor).reshape(-1) for o in outlines]
        codes.append(mask.merge(mask.frPyObjects(outlines_in_box, size, size)))
    with warnings.catch_warnings():
        # pycocotools 2.0.11 warns under NumPy 2
        warnings.filterwarnings("ignore", message="__array__ implementation doesn't accept")
        masks = mask.decode(codes)
    return torch.from_numpy(masks).permute(2, 0, 1).to(boxes)


def select_class(logits: Tensor, classes: Tensor) -> Tensor:
    """Select the map (r, S, S) of each region's class."""
    return logits[torch.arange(len(logits), device=logits.device), classes]


def box_losses(
    logits: Tensor,
    deltas: Tensor,
    regions: Sequence[Regions],
    samples: Sequence[Sample],
    recipe: DetectorRecipe,
) -> dict[str, Tensor]:
    """Return loss_cls and loss_box_reg, means over all r regions of all images.

    logits (r, L + 1), background last; deltas (r, L, 4). Only positive regions have a box loss, but
    it is also divided by r.
    """
    logits, deltas = logits.float(), deltas.float()
    classes = torch.cat([image_regions.classes for image_regions in regions])
    if len(classes) == 0:
        # zero losses with gradients for all parameters, which distributed training needs
        return {"loss_cls": logits.sum() * 0, "loss_box_reg": deltas.sum() * 0}
    positive = (classes < deltas.shape[1]).nonzero()[:, 0]
    boxes = torch.cat([image_regions.boxes for image_regions in regions])[positive]
    targets = [
        # a placeholder for images without objects, which have no positive regions
        sample.boxes[image_regions.objects] if len(sample.boxes) else image_regions.boxes
        for sample, image_regions in zip(samples, regions, strict=True)
    ]
    distance = F.smooth_l1_loss(
        deltas[positive, classes[positive]],
        encode(boxes, torch.cat(targets)[positive], recipe.box_weights),
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

    logits (r, L + 1), deltas (r, L, 4). A proposal (r, 4) gives one detection per class above the
    minimum score.
    """
    boxes = decode(proposals[:, None], deltas, recipe.box_weights)
    scores = logits.float().softmax(dim=1)
    # indices, since indexing with a mask waits for the device each time
    finite = (boxes.isfinite().all(dim=2).all(dim=1) & scores.isfinite().all(dim=1)).nonzero()[:, 0]
    boxes, scores = clip_boxes_to_image(boxes[finite], size), scores[finite, :-1]
    rows, classes = (scores > recipe.min_score).nonzero().unbind(dim=1)
    boxes, scores = boxes[rows, classes], scores[rows, classes]
    best = batched_nms(boxes, scores, classes, recipe.nms_iou)[: recipe.detections]
    return ResizedDetections(boxes=boxes[best], scores=scores[best], classes=classes[best])
