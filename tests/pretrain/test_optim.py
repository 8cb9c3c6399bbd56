import pytest
import torch
from torch import nn

from pretrain.optim import scheduled_rate, sgd


def test_cosine_starts_at_the_rate_and_ends_at_nothing() -> None:
    rates = [scheduled_rate("cosine", share, learning_rate=0.06) for share in (0, 1 / 3, 0.5, 1)]
    assert rates == pytest.approx([0.06, 0.045, 0.03, 0.0])


def test_steps_divide_by_ten_at_each_milestone() -> None:
    # MoCo v1: a tenth at epochs 120 and 160 of 200
    rates = [
        scheduled_rate("step", epoch / 200, learning_rate=0.03, milestones=(0.6, 0.8))
        for epoch in (0, 119, 120, 159, 160)
    ]
    assert rates == pytest.approx([0.03, 0.03, 0.003, 0.003, 0.0003])


def test_sgd_decays_and_remembers_as_written_out() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    optimizer = sgd(layer, learning_rate=0.1, momentum=0.9, weight_decay=0.5)
    weight, velocity = 2.0, 0.0
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        velocity = 0.9 * velocity + 1.0 + 0.5 * weight
        weight -= 0.1 * velocity
    assert layer.weight.item() == pytest.approx(weight)
