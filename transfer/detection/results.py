"""Detections in the original image, the input of the evaluators.

The rules are detectron2's: boxes are scaled and clipped, and masks pasted by bilinear sampling.
"""

from dataclasses import dataclass

import numpy as np
import torch
from pycocotools import mask as coco_mask
from torch import Tensor
from torch.nn.functional import grid_sample

from transfer.datasets.scenes import Scene
from transfer.detection.detector import ResizedDetections

MASK_THRESHOLD = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Detections:
    """k detections in one image, best first, in px of the original image; all on the CPU."""

    height: int
    """Height of the original image."""
    width: int
    """Width of the original image."""
    boxes: Tensor
    """(k, 4) float32: left, top, right, bottom."""
    scores: Tensor
    """Confidences (k,), from 0 to 1."""
    classes: Tensor
    """(k,) int64, from 0."""
    masks: list[str] | None = None
    """k masks (height, width) as COCO's compressed run lengths, a hundredth of the pixels' size."""
    keypoints: Tensor | None = None
    """(k, 17, 3): x, y, score; the middle of the first pixel is at 0.5, unlike in COCO's files."""


def to_original_size(found: ResizedDetections, scene: Scene, image: Tensor) -> Detections:
    """Return the k detections on the resized image (3, H, W) of a scene in px of the original.

    found: boxes (k, 4), masks (k, 28, 28) and keypoints (k, 17, 3) in px of the resized image.
    Detections whose box is empty after clipping are dropped.
    """
    height, width = scene.height, scene.width
    scale_x, scale_y = width / image.shape[2], height / image.shape[1]
    boxes = found.boxes.detach().cpu()
    boxes = boxes * boxes.new_tensor([scale_x, scale_y, scale_x, scale_y])
    boxes = boxes.clamp(min=0).minimum(boxes.new_tensor([width, height, width, height]))
    kept = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
    boxes = boxes[kept]
    masks = keypoints = None
    if found.masks is not None:
        # pasted on the CPU, also after detection on a GPU, so that a mask has the same bits
        small = found.masks.detach().cpu()[kept]
        masks = [
            run_lengths(paste_mask(mask, box, height=height, width=width))
            for mask, box in zip(small, boxes, strict=True)
        ]
    if found.keypoints is not None:
        keypoints = found.keypoints.detach().cpu()[kept]
        keypoints = keypoints * keypoints.new_tensor([scale_x, scale_y, 1.0])
    return Detections(
        height=height,
        width=width,
        boxes=boxes,
        scores=found.scores.detach().cpu()[kept],
        classes=found.classes.cpu()[kept],
        masks=masks,
        keypoints=keypoints,
    )


def paste_mask(mask: Tensor, box: Tensor, *, height: int, width: int) -> Tensor:
    """Return the pixels (height, width) bool whose center has a probability of at least one half.

    mask: probabilities (S, S) at the centers of the S x S cells of the box (4,). They are
    interpolated between the centers and fall to zero outside of the box.
    """
    left, top, right, bottom = box
    first_x, first_y = (max(0, int(edge.floor()) - 1) for edge in (left, top))
    end_x = min(width, int(right.ceil()) + 1)
    end_y = min(height, int(bottom.ceil()) + 1)
    x = torch.arange(first_x, end_x, dtype=torch.float32) + 0.5
    y = torch.arange(first_y, end_y, dtype=torch.float32) + 0.5
    # grid_sample's coordinates: -1 and 1 are the edges of the box
    x = (x - left) / (right - left) * 2 - 1
    y = (y - top) / (bottom - top) * 2 - 1
    grid = torch.stack([x.expand(len(y), -1), y[:, None].expand(-1, len(x))], dim=2)
    near = grid_sample(mask.float()[None, None], grid[None], align_corners=False)[0, 0]
    whole = torch.zeros(height, width, dtype=torch.bool)
    whole[first_y:end_y, first_x:end_x] = near >= MASK_THRESHOLD
    return whole


def run_lengths(mask: Tensor) -> str:
    """Return COCO's compressed run lengths of a bool mask (H, W)."""
    encoded = coco_mask.encode(np.asfortranarray(mask.numpy(), dtype=np.uint8))
    counts: bytes = encoded["counts"]
    return counts.decode()
