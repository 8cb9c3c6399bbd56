"""Random stays what it was drawn as."""

import torch
from torch import nn

from pretrain.methods.random import Random
from pretrain.recipes.baselines import RandomConfig


def test_a_step_changes_no_weight_and_costs_nothing() -> None:
    method = Random(nn.Sequential(nn.Flatten(), nn.Linear(48, 12)), 12, RandomConfig())
    before = [parameter.clone() for parameter in method.parameters()]
    optimizer = torch.optim.SGD(method.parameters(), lr=1.0)
    loss = method([torch.randn(5, 3, 4, 4)], 1.0)["loss"]
    loss.backward()
    optimizer.step()
    assert loss.item() == 0
    assert all(torch.equal(p, q) for p, q in zip(before, method.parameters(), strict=True))
