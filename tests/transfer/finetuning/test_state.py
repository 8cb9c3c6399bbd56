"""The checkpoint of a training, and the summary of its losses."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import nn

from transfer.detection.recipe import COCO_FPN
from transfer.finetuning.state import CURVE_POINTS, SMOOTHED, Training, restore, save, summary


def training(num_iterations: int) -> Training:
    """Return a training whose losses are a = 0, 1, 2,.

    and b = 1.
    """
    losses = torch.stack([torch.arange(float(num_iterations)), torch.ones(num_iterations)], dim=1)
    result = new_training(Path())
    result.iteration, result.names = num_iterations, ("a", "b")
    result.losses = [losses[: num_iterations // 3], losses[num_iterations // 3 :]]
    return result


def test_final_loss_is_a_mean_of_the_last_steps() -> None:
    for iterations, points in ((3, 3), (CURVE_POINTS + 1, CURVE_POINTS), (1037, CURVE_POINTS)):
        result = summary(training(iterations))
        last = range(max(0, iterations - SMOOTHED), iterations)
        assert result["losses"] == {"a": fmean(last), "b": 1.0}
        assert len(result["curve"]) == points
        assert result["curve"][-1][0] == iterations
        for (start, _), (end, loss) in pairwise([(0, 0.0), *result["curve"]]):
            # losses are whole numbers below 2**24, so that float32 sums them exactly
            assert loss == pytest.approx(fmean(range(start, end)) + 1, rel=1e-6)


def steps(training: Training, numbers: Sequence[int]) -> None:
    for number in numbers:
        generator = torch.Generator().manual_seed(number)
        for weight in training.network.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.grad = torch.empty_like(weight).copy_(noise)
        training.optimizer.step()


def new_training(folder: Path) -> Training:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 1))
    network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    return Training(network=network, optimizer=optimizer, schedule=COCO_FPN, folder=folder)


def test_momenta_come_back_in_the_layout_of_their_weights(tmp_path: Path) -> None:
    whole, part, again = (new_training(tmp_path) for _ in range(3))
    steps(whole, range(4))
    steps(part, range(2))
    save(part)
    restore(again)
    for weight in again.network.parameters():
        momentum: torch.Tensor = again.optimizer.state[weight]["momentum_buffer"]
        assert momentum.stride() == weight.stride()
    steps(again, range(2, 4))
    pairs = zip(again.network.parameters(), whole.network.parameters(), strict=True)
    assert all(torch.equal(result, expected) for result, expected in pairs)
