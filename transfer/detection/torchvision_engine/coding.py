"""Boxes as deltas from other boxes: R-CNN (Girshick et al., CVPR 2014, arXiv:1311.2524)."""

import math

import torch
from torch import Tensor

LARGEST_GROWTH = math.log(1000 / 16)
"""Upper limit of dw and dh, so that an extreme prediction does not overflow."""

Weights = tuple[float, float, float, float]


def encode(boxes: Tensor, goals: Tensor, weights: Weights) -> Tensor:
    """Return deltas (r, 4) from boxes (r, 4) to goals (r, 4), times the weights."""
    sizes, goal_sizes = boxes[:, 2:] - boxes[:, :2], goals[:, 2:] - goals[:, :2]
    centers, goal_centers = boxes[:, :2] + 0.5 * sizes, goals[:, :2] + 0.5 * goal_sizes
    factors = _on_device(weights, boxes)
    shifts = factors[:2] * (goal_centers - centers) / sizes
    growths = factors[2:] * torch.log(goal_sizes / sizes)
    return torch.cat([shifts, growths], dim=1)


def decode(boxes: Tensor, deltas: Tensor, weights: Weights) -> Tensor:
    """Return boxes (..., 4) moved by deltas (..., 4), always in float32."""
    deltas = deltas.float() / _on_device(weights, boxes)
    sizes = boxes[..., 2:] - boxes[..., :2]
    centers = boxes[..., :2] + 0.5 * sizes
    centers = deltas[..., :2] * sizes + centers
    sizes = deltas[..., 2:].clamp(max=LARGEST_GROWTH).exp() * sizes
    return torch.cat([centers - 0.5 * sizes, centers + 0.5 * sizes], dim=-1)


def _on_device(weights: Weights, boxes: Tensor) -> Tensor:
    """Return the weights (4,) in the type of the boxes, written by the device itself.

    A copy of them would wait for all work that the device has been given before.
    """
    return torch.stack([boxes.new_full((), weight) for weight in weights])
