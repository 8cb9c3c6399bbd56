"""The summary of trainings longer than the number of losses that it keeps."""

import pytest
import torch
from torch import nn

from transfer.finetuning.state import CURVE_POINTS, SMOOTHED, Training, summary


def training(num_iterations: int) -> Training:
    """Return a training whose losses are a = 0, 1, 2, ... and b = 1."""
    network = nn.Linear(1, 1)
    losses = torch.stack([torch.arange(float(num_iterations)), torch.ones(num_iterations)], dim=1)
    return Training(
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
        iteration=num_iterations,
        names=("a", "b"),
        losses=[losses[: num_iterations // 3], losses[num_iterations // 3 :]],
    )


def test_the_final_loss_is_the_mean_of_the_last_iterations_only() -> None:
    for num_iterations in (SMOOTHED + 150, 10 * CURVE_POINTS):
        last = sum(range(num_iterations - SMOOTHED, num_iterations)) / SMOOTHED
        assert summary(training(num_iterations)).losses == {"a": last, "b": 1.0}


def test_a_curve_has_at_most_so_many_points_each_the_mean_since_the_one_before() -> None:
    for num_iterations, points in ((3, 3), (CURVE_POINTS + 1, CURVE_POINTS), (1037, CURVE_POINTS)):
        curve = summary(training(num_iterations)).curve
        assert len(curve) == points
        assert curve[-1][0] == num_iterations
        start = 0
        for end, loss in curve:
            # losses are whole numbers below 2**24, so that float32 sums them exactly
            assert loss == pytest.approx(sum(range(start, end)) / (end - start) + 1, rel=1e-6)
            start = end
