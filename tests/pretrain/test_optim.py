"""Optimizers and schedules against explicit numbers and timm's LARS."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from pretrain.method import Method
from pretrain.optim import build_optimizer, scheduled_rate
from pretrain.recipes import RECIPES
from pretrain.recipes.recipe import Schedule
from tests.rounding import assert_equal_up_to_rounding


def test_steps_divide_by_ten_at_each_milestone() -> None:
    # MoCo v1: a tenth at epochs 120 and 160 of 200
    recipe = RECIPES["moco/in1k-r50-v1"]
    rates = [scheduled_rate(recipe, 0.999, epoch / 200) for epoch in (0, 119, 120, 159, 160)]
    assert rates == pytest.approx([0.03, 0.03, 0.003, 0.003, 0.0003])


def optimizer_of(kind: Any, network: nn.Module, **changes: Any) -> Optimizer:
    numbers = {"learning_rate": 0.1, "weight_decay": 0.1, "trust_coefficient": 0.1, **changes}
    return build_optimizer(network, replace(RECIPES["moco/smoke"], optimizer=kind, **numbers))


def test_sgd_decays_and_remembers_as_written_out() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    optimizer = optimizer_of("sgd", layer, weight_decay=0.5)
    weight, velocity = 2.0, 0.0
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        velocity = 0.9 * velocity + 1.0 + 0.5 * weight
        weight -= 0.1 * velocity
    assert_equal_up_to_rounding(layer.weight, torch.tensor([[weight]]))


@pytest.mark.parametrize("schedule", ["cosine", "step"])
def test_warm_up_is_linear_from_nothing_to_the_rate(schedule: Schedule) -> None:
    recipe = replace(
        RECIPES["moco/in1k-r50-v2"],
        schedule=schedule,
        learning_rate=0.4,
        final_learning_rate=0.1,
        warmup_epochs=10,
    )
    rates = [scheduled_rate(recipe, epoch / 200, 0.0) for epoch in (0, 1, 5, 9, 10)]
    assert rates == pytest.approx([0.0, 0.04, 0.2, 0.36, 0.4])


def test_cosine_after_a_warm_up_is_that_of_the_rest_of_the_run() -> None:
    plain = RECIPES["moco/in1k-r50-v2"]
    warmed = replace(plain, warmup_epochs=40)
    shares = (0, 0.3, 0.7, 1)
    whole = [scheduled_rate(plain, share, share) for share in shares]
    after_warm_up = [scheduled_rate(warmed, 0.2 + 0.8 * s, 0.2 + 0.8 * s) for s in shares]
    assert after_warm_up == pytest.approx(whole)


class TwoRates(Method):
    """Two layers with norms; the second keeps its learning rate."""

    fixed_rate = ("second",)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(2)
        )
        self.second[0].bias.requires_grad_(False)


def test_what_keeps_its_rate_is_in_groups_of_its_own_that_come_last() -> None:
    network = TwoRates()
    for kind, decays in (("sgd", [0.5, 0.5]), ("lars", [0.5, 0.0, 0.5, 0.0])):
        groups = optimizer_of(kind, network, weight_decay=0.5).param_groups
        assert [group["weight_decay"] for group in groups] == decays
        for is_fixed, module in ((False, network.first), (True, network.second)):
            held = [
                w for group in groups if group["fixed_rate"] == is_fixed for w in group["params"]
            ]
            assert {*held} == {p for p in module.parameters() if p.requires_grad}
            assert len(held) == len({*held})
        assert groups[0]["fixed_rate"] is False


class Weights(nn.Module):
    """A matrix, a vector, a zero matrix, and a vector without gradient."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(5, 7, generator=generator))
        self.vector = nn.Parameter(torch.randn(5, generator=generator))
        self.zeros = nn.Parameter(torch.zeros(4, 3))
        self.still = nn.Parameter(torch.randn(3, 2, generator=generator))
        self.unused = nn.Parameter(torch.randn(6, generator=generator))
        self.frozen = nn.Parameter(torch.randn(6, generator=generator), requires_grad=False)


def run(network: Weights, optimizer: Optimizer, steps: range) -> None:
    """Take steps with gradients that depend on the step and the weights."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in (network.matrix, network.vector, network.zeros):
            noise = torch.randn(weight.shape, generator=generator)
            weight.grad = 0.1 * weight.detach() + noise
        network.still.grad = torch.zeros_like(network.still)
        optimizer.step()


def timms(network: Weights, *, exclude_vectors: bool = True) -> Optimizer:
    """By default, timm does not scale tensors without weight decay."""
    from timm.optim.lars import Lars  # takes seconds

    vectors = [network.vector, network.unused]
    matrices = [network.matrix, network.zeros, network.still]
    groups = [
        {"params": matrices, "weight_decay": 0.01},
        {"params": vectors, "weight_decay": 0.0 if exclude_vectors else 0.01},
    ]
    return Lars(groups, lr=0.7, momentum=0.9, trust_coeff=0.02, always_adapt=not exclude_vectors)


@pytest.mark.parametrize("exclude_vectors", [True, False])
def test_lars_is_timms(exclude_vectors: bool) -> None:
    network, twin = Weights(), Weights()
    numbers = {"learning_rate": 0.7, "weight_decay": 0.01, "trust_coefficient": 0.02}
    ours = optimizer_of("lars", network, **numbers, exclude_vectors=exclude_vectors)
    run(network, ours, range(20))
    run(twin, timms(twin, exclude_vectors=exclude_vectors), range(20))
    for result, expected in zip(network.parameters(), twin.parameters(), strict=True):
        assert_equal_up_to_rounding(result, expected)
    for name in ("unused", "frozen"):
        assert torch.equal(network.get_parameter(name), Weights().get_parameter(name))


def layers() -> nn.Sequential:
    """Convolutions in channels_last, one of 1 x 1, and a linear layer."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1), nn.Flatten(), nn.Linear(20, 2))
    return network.to(memory_format=torch.channels_last)


def gradients(network: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for weight in network.parameters():
        noise = torch.randn(weight.shape, generator=generator)
        weight.grad = torch.empty_like(weight).copy_(noise)


@pytest.mark.parametrize("kind", ["sgd", "lars"])
def test_a_weight_that_thaws_starts_as_in_an_optimizer_of_its_own(kind: str) -> None:
    network, twin = layers(), layers()[3]
    frozen = network[3]
    ours, single = (optimizer_of(kind, n) for n in (network, twin))
    for step in range(5):
        gradients(network, step)
        if step < 2:
            frozen.zero_grad()
        else:
            for weight, same in zip(twin.parameters(), frozen.parameters(), strict=True):
                weight.grad = same.grad
            single.step()
        ours.step()
        for result, expected in zip(frozen.parameters(), twin.parameters(), strict=True):
            assert torch.equal(result, expected)
