"""The summary of a training that is longer than what it keeps of losses."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import nn

from transfer.detection.recipe import COCO_FPN
from transfer.finetuning.state import CURVE_POINTS, SMOOTHED, Training, summary


def training(num_iterations: int) -> Training:
    """Return a training whose losses are a = 0, 1, 2, ... and b = 1."""
    losses = torch.stack([torch.arange(float(num_iterations)), torch.ones(num_iterations)], dim=1)
    network = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    found = Training(network=network, optimizer=optimizer, course=COCO_FPN, folder=Path())
    found.iteration, found.names = num_iterations, ("a", "b")
    found.losses = [losses[: num_iterations // 3], losses[num_iterations // 3 :]]
    return found


def test_the_final_loss_is_a_mean_of_the_last_iterations_and_a_point_one_since_the_last() -> None:
    for iterations, points in ((3, 3), (CURVE_POINTS + 1, CURVE_POINTS), (1037, CURVE_POINTS)):
        found = summary(training(iterations))
        last = range(max(0, iterations - SMOOTHED), iterations)
        assert found.losses == {"a": fmean(last), "b": 1.0}
        assert len(found.curve) == points
        assert found.curve[-1][0] == iterations
        for (start, _), (end, loss) in pairwise([(0, 0.0), *found.curve]):
            # losses are whole numbers below 2**24, so that float32 sums them exactly
            assert loss == pytest.approx(fmean(range(start, end)) + 1, rel=1e-6)
