"""Anchors against boxes computed by hand."""

import math

import pytest
import torch

from transfer.detection.torchvision_engine.proposals import cell_anchors, grid_anchors


def test_a_tall_anchor_of_size_32_is_not_rounded() -> None:
    box = cell_anchors([32], [2.0])[0]
    half_width, half_height = 32 / math.sqrt(2) / 2, 32 * math.sqrt(2) / 2
    expected = [-half_width, -half_height, half_width, half_height]
    assert box.tolist() == pytest.approx(expected)


def test_sizes_are_outermost_and_areas_are_squares() -> None:
    cell = cell_anchors([8, 16], [0.5, 1.0, 2.0])
    sides = cell[:, 2:] - cell[:, :2]
    assert sides.prod(dim=1).tolist() == pytest.approx([64, 64, 64, 256, 256, 256])
    assert (sides[:, 1] / sides[:, 0]).tolist() == pytest.approx([0.5, 1, 2, 0.5, 1, 2])


def test_anchors_go_row_by_row_from_the_corner_of_the_image() -> None:
    boxes = grid_anchors(cell_anchors([8], [1.0]), stride_px=16, height=2, width=3)
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    assert centers.tolist() == [[0, 0], [16, 0], [32, 0], [0, 16], [16, 16], [32, 16]]


def test_all_anchors_of_a_position_are_neighbors() -> None:
    cell = cell_anchors([8], [0.5, 1.0, 2.0])
    boxes = grid_anchors(cell, stride_px=4, height=1, width=2)
    torch.testing.assert_close(boxes[3:], cell + torch.tensor([4.0, 0.0, 4.0, 0.0]))
