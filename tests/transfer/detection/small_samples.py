"""Three noise images of at most 128 px, with every kind of object."""

import math

import numpy as np
import torch

from transfer.detection.detector import Polygons, Sample

BOXES = (
    ((8.0, 12.0, 56.0, 70.0), (40.0, 30.0, 118.0, 88.0), (70.5, 4.25, 84.0, 21.5)),
    ((3.0, 5.0, 90.0, 104.0), (50.0, 60.0, 75.0, 100.0)),
    ((20.0, 10.0, 60.0, 40.0),),
)
SIZES = ((96, 128), (112, 96), (64, 88))
"""Height and width; not all are multiples of 32."""


def small_samples(num_images: int = 2, num_classes: int = 1) -> list[Sample]:
    """Return samples with boxes, masks and keypoints, the same at every call."""
    generator = torch.Generator().manual_seed(7)
    samples = []
    for (height, width), boxes in list(zip(SIZES, BOXES, strict=True))[:num_images]:
        image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)
        samples.append(
            Sample(
                image=image,
                boxes=torch.tensor(boxes),
                classes=torch.arange(len(boxes)) % num_classes,
                polygons=tuple(outlines(box) for box in boxes),
                keypoints=torch.stack([keypoints(box, generator) for box in boxes]),
            )
        )
    return samples


def outlines(box: tuple[float, ...]) -> Polygons:
    """Return the outlines of an ellipse and a triangle in a box."""
    left, top, right, bottom = box
    angles = np.arange(12) * (2 * math.pi / 12)
    x = (left + right) / 2 + (right - left) / 2 * np.cos(angles)
    y = (top + bottom) / 2 + (bottom - top) / 2 * np.sin(angles)
    middle = (left + right) / 2
    triangle = np.array([left, top, middle, top, left, (top + bottom) / 2])
    return np.stack([x, y], axis=1).reshape(-1), triangle


def keypoints(box: tuple[float, ...], generator: torch.Generator) -> torch.Tensor:
    """Return (17, 3), some beside the box.

    The sixth is not labeled, others are hidden.
    """
    left, top, right, bottom = box
    positions = torch.rand(17, 2, generator=generator) * 1.1 - 0.05
    positions = positions * torch.tensor([right - left, bottom - top]) + torch.tensor([left, top])
    visible = 1 + torch.arange(17) % 2
    visible[5] = 0
    positions[5] = 0
    return torch.cat([positions, visible[:, None].float()], dim=1)
