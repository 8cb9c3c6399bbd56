"""Detections of a trained detector in the original images, the input of the evaluators.

As in detectron2, boxes are scaled and clipped, and masks are pasted by bilinear sampling.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from pycocotools import mask as coco_mask
from torch import Tensor
from torch.nn.functional import grid_sample

from pretrain.running.console import progress
from pretrain.running.processes import Process, indices_of_process
from transfer.datasets.scenes import Scene, Scenes
from transfer.detection.detector import Detector, ResizedDetections
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.samples import image_for_test

MASK_THRESHOLD = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Detections:
    """The k detections in one image, best first, on the CPU.

    Coordinates are in px of the original image.
    """

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
    """k masks (height, width) as COCO's compressed run lengths."""
    keypoints: Tensor | None = None
    """(k, 17, 3): x, y, score; the first pixel's center is 0.5."""


def detect(
    detector: Detector, scenes: Scenes, recipe: DetectorRecipe, process: Process
) -> list[Detections]:
    """Return the detections on all images, in every process.

    They are in the order of the split. Each batch is one image, so that images have the same
    padding as in detectron2's test.
    """
    detector.eval()
    detections = []
    counting = progress("detect", recipe.finds, len(scenes)) if process.is_main else nullcontext()
    with torch.inference_mode(), counting as counter:
        for index in indices_of_process(len(scenes), process):
            image = image_for_test(scenes, index, recipe)
            result = detector.find([image.to(process.device)])[0]
            detections.append(to_original_size(result, scenes.scene(index), image))
            if counter is not None:
                counter.add(min(process.num_processes, len(scenes) - index))
    if process.num_processes == 1:
        return detections
    # image i was entry i // num_processes of process i % num_processes
    by_process: list[list[Detections]] = [[] for _ in range(process.num_processes)]
    dist.all_gather_object(by_process, detections)
    return [by_process[i % len(by_process)][i // len(by_process)] for i in range(len(scenes))]


def to_original_size(detections: ResizedDetections, scene: Scene, image: Tensor) -> Detections:
    """Convert detections from px of the resized to the original image.

    image (3, H, W): the resized image. Detections with an empty box after clipping are dropped.
    """
    height, width = scene.height, scene.width
    scale_x, scale_y = width / image.shape[2], height / image.shape[1]
    boxes = detections.boxes.detach().cpu()
    boxes = boxes * boxes.new_tensor([scale_x, scale_y, scale_x, scale_y])
    boxes = boxes.clamp(min=0).minimum(boxes.new_tensor([width, height, width, height]))
    is_kept = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
    boxes = boxes[is_kept]
    masks = keypoints = None
    if detections.masks is not None:
        # always on the CPU, so that masks are equal on all devices
        box_masks = detections.masks.detach().cpu()[is_kept]
        masks = [
            run_lengths(paste_mask(mask, box, height=height, width=width))
            for mask, box in zip(box_masks, boxes, strict=True)
        ]
    if detections.keypoints is not None:
        keypoints = detections.keypoints.detach().cpu()[is_kept]
        keypoints = keypoints * keypoints.new_tensor([scale_x, scale_y, 1.0])
    return Detections(
        height=height,
        width=width,
        boxes=boxes,
        scores=detections.scores.detach().cpu()[is_kept],
        classes=detections.classes.cpu()[is_kept],
        masks=masks,
        keypoints=keypoints,
    )


def paste_mask(mask: Tensor, box: Tensor, *, height: int, width: int) -> Tensor:
    """Return the pixels (height, width) with a probability of at least 0.5.

    mask: probabilities (S, S) at the centers of the S x S cells of the box (4,). They are
    interpolated between the centers and decrease to zero outside of the box.
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
    probabilities = grid_sample(mask.float()[None, None], grid[None], align_corners=False)[0, 0]
    pixels = torch.zeros(height, width, dtype=torch.bool)
    pixels[first_y:end_y, first_x:end_x] = probabilities >= MASK_THRESHOLD
    return pixels


def run_lengths(mask: Tensor) -> str:
    """Return COCO's compressed run lengths of a bool mask (H, W)."""
    encoded = coco_mask.encode(np.asfortranarray(mask.numpy(), dtype=np.uint8))
    counts: bytes = encoded["counts"]
    return counts.decode()
