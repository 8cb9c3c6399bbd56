"""RoIAlign on a map whose values are known between the pixels too."""

import pytest
import torch
from torch import Tensor

from transfer.detection.torchvision_engine.regions import pool, pyramid_levels


def ramp(height: int, width: int, stride_px: int) -> Tensor:
    """(1, 2, H, W): x and y of each pixel's center in px of the image."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return ((torch.stack([x, y])[None] + 0.5) * stride_px).float()


def test_a_box_of_224_px_belongs_to_stride_16_and_each_half_one_level_lower() -> None:
    sides = torch.tensor([10.0, 56.0, 112.0, 224.0, 448.0, 2000.0])
    boxes = torch.stack([torch.zeros(6), torch.zeros(6), sides, sides], dim=1)
    assert pyramid_levels(boxes, first_level=2, num_levels=4).tolist() == [0, 0, 1, 2, 3, 3]


def test_each_box_is_pooled_on_its_own_level_and_image() -> None:
    strides_px = (4, 8, 16, 32)
    maps = [
        torch.stack([torch.full((1, 64, 64), 10.0 * image + level) for image in range(2)])
        for level in range(4)
    ]
    small, large = [0.0, 0.0, 40.0, 40.0], [0.0, 0.0, 230.0, 230.0]
    boxes = [torch.tensor([large, small]), torch.tensor([small])]
    found = pool(maps, boxes, strides_px, 7).mean(dim=(1, 2, 3))
    assert found.tolist() == pytest.approx([2, 0, 10], rel=1e-5)  # means of 49 in float32


def test_half_precision_maps_do_not_move_boxes() -> None:
    # numbers of half precision are 0.5 apart here
    features = ramp(8, 512, 4)
    box = torch.tensor([[1001.25, 8.0, 1003.25, 16.0]])
    shifted = features - 1000
    pooled = pool([shifted.half()], [box], [4], 1)
    assert pooled.dtype == torch.float16
    # 2.25 and its neighbors are whole eighths, with an eps of 2^-10 in float16
    torch.testing.assert_close(pooled[0, 0, 0, 0].item(), 2.25, atol=0.01, rtol=0)
