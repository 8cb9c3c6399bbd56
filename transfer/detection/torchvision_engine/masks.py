"""Targets, loss and probabilities of masks within a box.

Mask R-CNN (He et al., ICCV 2017, arXiv:1703.06870); targets are rasterized as in detectron2.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import pycocotools.mask
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from transfer.detection.sample import Polygons, Sample
from transfer.detection.torchvision_engine.regions import Regions


def mask_loss(logits: Tensor, regions: Sequence[Regions], samples: Sequence[Sample]) -> Tensor:
    """Return the mean cross-entropy of logits (r, L, S, S) over pixels, for each region's class."""
    logits = logits.float()
    if len(logits) == 0:
        # a loss of 0 that reaches all parameters, as a training on several GPUs needs it
        return logits.sum() * 0
    polygons: list[Polygons] = []
    for sample, each in zip(samples, regions, strict=True):
        if sample.polygons is None:
            raise ValueError(
                f"a sample with {len(sample.boxes)} objects has no polygons, from which this "
                f"detector learns masks"
            )
        polygons += [sample.polygons[i] for i in each.objects.tolist()]
    targets = mask_targets(torch.cat([each.boxes for each in regions]), polygons, logits.shape[-1])
    classes = torch.cat([each.classes for each in regions])
    return F.binary_cross_entropy_with_logits(_select_class(logits, classes), targets)


def mask_targets(boxes: Tensor, polygons: Sequence[Polygons], size: int) -> Tensor:
    """Return targets (r, size, size), 0 or 1: the polygons in each box (r, 4), cropped, resized."""
    corners: NDArray[np.float32] = boxes.detach().cpu().numpy()
    # detectron2's least side of 0.1 px, against division by 0
    sides = np.maximum(corners[:, 2:] - corners[:, :2], np.float32(0.1))
    factors = np.float32(size) / sides
    codes = [
        _encode_outlines([(o.reshape(-1, 2) - corner[:2]) * factor for o in outlines], size)
        for corner, factor, outlines in zip(corners, factors, polygons, strict=True)
    ]
    if not codes:
        return boxes.new_zeros(0, size, size)
    with warnings.catch_warnings():
        # pycocotools 2.0.11 warns under NumPy 2
        warnings.filterwarnings("ignore", message="__array__ implementation doesn't accept")
        masks = pycocotools.mask.decode(codes)
    return torch.from_numpy(masks).permute(2, 0, 1).to(boxes)


def _encode_outlines(outlines: Sequence[NDArray[np.float64]], size: int) -> object:
    """Return all outlines of an object as one compressed mask of pycocotools."""
    if not outlines:
        return pycocotools.mask.encode(np.zeros((size, size), dtype=np.uint8, order="F"))
    parts = pycocotools.mask.frPyObjects([o.reshape(-1) for o in outlines], size, size)
    return pycocotools.mask.merge(parts)


def class_probabilities(logits: Tensor, classes: Tensor) -> Tensor:
    """Return probabilities (k, S, S) of each detection's class from logits (k, L, S, S)."""
    return _select_class(logits, classes).float().sigmoid()


def _select_class(logits: Tensor, classes: Tensor) -> Tensor:
    return logits[torch.arange(len(logits), device=logits.device), classes]
