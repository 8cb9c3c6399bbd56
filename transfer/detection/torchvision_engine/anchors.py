"""Anchors: the boxes that the RPN's deltas refer to, the same at every position of a map.

Faster R-CNN (Ren et al., NeurIPS 2015, arXiv:1506.01497). As in detectron2, sides are not rounded,
and the first center is the corner of the image.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def cell_anchors(sizes_px: Sequence[float], ratios: Sequence[float]) -> Tensor:
    """Return boxes (A, 4) around 0 with area size squared and the ratios height over width.

    The ratios of the first size come first.
    """
    sides = [
        (math.sqrt(size**2 / ratio), ratio * math.sqrt(size**2 / ratio))
        for size in sizes_px
        for ratio in ratios
    ]
    return torch.tensor([(-w / 2, -h / 2, w / 2, h / 2) for w, h in sides])


def grid_anchors(cell: Tensor, stride_px: int, height: int, width: int) -> Tensor:
    """Return boxes (H * W * A, 4): those of the cell (A, 4) at every position, row by row."""
    y, x = torch.meshgrid(
        torch.arange(height, device=cell.device) * stride_px,
        torch.arange(width, device=cell.device) * stride_px,
        indexing="ij",
    )
    centers = torch.stack([x, y, x, y], dim=-1).to(cell.dtype)
    return (centers.reshape(-1, 1, 4) + cell).reshape(-1, 4)
