"""RoIAlign on the level of the pyramid that fits the size of each box.

Mask R-CNN (He et al., ICCV 2017, arXiv:1703.06870); levels by eq. 1 of Feature Pyramid Networks
(Lin et al., CVPR 2017, arXiv:1612.03144).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.ops import box_area, roi_align


def pyramid_levels(boxes: Tensor, first_level: int, num_levels: int) -> Tensor:
    """Return the pyramid level (r,) of boxes (r, 4), counted from 0 for `first_level`.

    Level k has a stride of 2^k px. Boxes of 224 px get level 4, each doubling one more.
    """
    levels = torch.floor(4 + torch.log2(box_area(boxes).sqrt() / 224 + 1e-8))
    return levels.clamp(first_level, first_level + num_levels - 1).long() - first_level


def pool(
    maps: Sequence[Tensor], boxes: Sequence[Tensor], strides_px: Sequence[int], size: int
) -> Tensor:
    """Return pooled maps (r, C, size, size) of boxes, n of (r_i, 4), on levels (n, C, H, W)."""
    every = torch.cat(list(boxes))
    images = torch.cat([torch.full_like(b[:, :1], i) for i, b in enumerate(boxes)])
    regions = torch.cat([images, every], dim=1)
    if len(maps) == 1:
        return _roi_align(maps[0], regions, strides_px[0], size)
    levels = pyramid_levels(every, int(math.log2(strides_px[0])), len(maps))
    pooled = maps[0].new_zeros(len(every), maps[0].shape[1], size, size)
    for level, (features, stride_px) in enumerate(zip(maps, strides_px, strict=True)):
        chosen = (levels == level).nonzero()[:, 0]
        pooled[chosen] = _roi_align(features, regions[chosen], stride_px, size)
    return pooled


def _roi_align(features: Tensor, regions: Tensor, stride_px: int, size: int) -> Tensor:
    # float32 also under autocast: half precision would move the boxes by pixels
    dtype = torch.promote_types(features.dtype, regions.dtype)
    pooled: Tensor = roi_align(
        features.to(dtype),
        regions.to(dtype),
        size,
        spatial_scale=1 / stride_px,
        sampling_ratio=0,
        aligned=True,
    )
    return pooled.to(features.dtype)
