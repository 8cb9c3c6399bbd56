"""Deltas between boxes."""

import pytest
import torch

from transfer.detection.torchvision_engine.regions import decode, encode

WEIGHTS = (10.0, 10.0, 5.0, 5.0)


def some_boxes(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner, size = torch.rand(2, count, 2, generator=generator)
    return torch.cat([50 * corner, 50 * corner + 1 + 40 * size], dim=1)


def test_a_box_moved_by_its_deltas_is_the_goal() -> None:
    boxes, goals = some_boxes(20, seed=0), some_boxes(20, seed=1)
    found = decode(boxes, encode(boxes, goals, WEIGHTS), WEIGHTS)
    # a dozen operations on px up to 91 in float32
    atol = 12 * 91 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(found, goals, rtol=0, atol=atol)


def test_deltas_are_shifts_by_the_size_and_logarithms_of_growth() -> None:
    box = torch.tensor([[0.0, 0.0, 10.0, 20.0]])
    goal = torch.tensor([[10.0, 0.0, 30.0, 20.0]])  # center 15 to the right, twice as wide
    deltas = encode(box, goal, WEIGHTS)[0]
    assert deltas.tolist() == pytest.approx([10 * 1.5, 0, 5 * 0.6931472, 0])


def test_no_box_grows_more_than_from_16_to_1000_px() -> None:
    box = torch.tensor([[0.0, 0.0, 16.0, 16.0]])
    grown = decode(box, torch.tensor([[0.0, 0.0, 99.0, 0.0]]), (1.0, 1.0, 1.0, 1.0))[0]
    assert (grown[2] - grown[0]).item() == pytest.approx(1000)


def test_deltas_of_half_precision_move_in_float32() -> None:
    box = torch.tensor([[1000.0, 0.0, 1001.0, 1.0]])
    moved = decode(box, torch.full((1, 4), 0.25).half(), (1.0, 1.0, 1.0, 1.0))
    assert moved.dtype == torch.float32
    assert ((moved[0, 0] + moved[0, 2]) / 2).item() == pytest.approx(1000.75)
