"""Detections are mapped to the original image as in detectron2."""

import torch

from tests.transfer.detection.scenes import scene
from transfer.detection.detector import ResizedDetections
from transfer.detection.results import paste_mask, to_original_size


def test_empty_boxes_are_dropped_after_clipping() -> None:
    result = ResizedDetections(
        boxes=torch.tensor([[2.0, 4, 10, 8], [-4, -4, 400, 400], [200, 4, 210, 8]]),
        scores=torch.tensor([0.9, 0.8, 0.7]),
        classes=torch.tensor([2, 0, 1]),
        keypoints=torch.rand(3, 17, 3),
    )
    original = to_original_size(result, scene("image.jpg", 1, 50, 200), torch.empty(3, 100, 100))
    assert original.boxes.tolist() == [[1, 8, 5, 16], [0, 0, 50, 200]]
    assert original.scores.tolist() == result.scores[:2].tolist()
    assert original.classes.tolist() == [2, 0]
    assert result.keypoints is not None
    assert original.keypoints is not None
    factors = torch.tensor([0.5, 2, 1])  # the score is none of the image
    torch.testing.assert_close(original.keypoints, result.keypoints[:2] * factors)


def test_a_full_mask_covers_the_pixels_whose_centers_are_in_its_box() -> None:
    mask = paste_mask(torch.ones(28, 28), torch.tensor([3.0, 2, 7, 9.4]), height=12, width=10)
    expected = torch.zeros(12, 10, dtype=torch.bool)
    expected[2:9, 3:7] = True
    assert torch.equal(mask, expected)


def test_a_mask_is_its_probabilities_interpolated_between_cell_centers() -> None:
    mask = torch.rand(4, 4, generator=torch.Generator().manual_seed(1))
    left, top, right, bottom = box = (-3.0, 2.5, 17.0, 21.0)
    padded = torch.nn.functional.pad(mask, (1, 1, 1, 1))
    expected = torch.zeros(20, 15, dtype=torch.float64)
    for row in range(20):
        for column in range(15):
            x = (column + 0.5 - left) / (right - left) * 4 + 0.5
            y = (row + 0.5 - top) / (bottom - top) * 4 + 0.5
            if 0 <= x < 5 and 0 <= y < 5:
                i, j, v, u = int(y), int(x), y % 1, x % 1
                upper = (1 - u) * padded[i, j] + u * padded[i, j + 1]
                lower = (1 - u) * padded[i + 1, j] + u * padded[i + 1, j + 1]
                expected[row, column] = (1 - v) * upper + v * lower
    result = paste_mask(mask, torch.tensor(box), height=20, width=15)
    clear = (expected - 0.5).abs() > 1e-5  # no rounding of float32 decides of these
    assert torch.equal(result[clear], expected[clear] >= 0.5)
    assert clear.double().mean() > 0.99
