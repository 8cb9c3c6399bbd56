"""Weight decay and learning rates of each parameter are detectron2's."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.transfer.detection.tiny_training import TinyDetector, tiny_recipe
from transfer.detection.detectron2_engine import silence_known_warnings
from transfer.detection.recipe import COCO_FPN, VOC_C4, DetectorRecipe
from transfer.detection.train import sgd
from transfer.finetuning.options import of_length
from transfer.finetuning.schedule import learning_rate, set_rate


def group_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, object]:
    (found,) = (g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    return found


def test_all_but_norms_decays_biases_too() -> None:
    detector = TinyDetector()
    optimizer = sgd(detector, tiny_recipe(weight_decay=0.01))
    decays = {
        name: group_of(optimizer, parameter)["weight_decay"]
        for name, parameter in detector.network.named_parameters()
    }
    assert {name for name, decay in decays.items() if decay == 0} == {"norm.weight", "norm.bias"}
    assert {decay for decay in decays.values() if decay} == {0.01}


def test_the_rpn_learns_at_a_share_of_the_rate_where_that_is_the_reading() -> None:
    detector = TinyDetector()
    recipe = tiny_recipe(rpn_gradient="lr_mult", rpn_gradient_factor=0.1)
    optimizer = sgd(detector, recipe)
    set_rate(optimizer, 0.5)
    for name, parameter in detector.network.named_parameters():
        expected = 0.05 if name.startswith("rpn.") else 0.5
        assert group_of(optimizer, parameter)["lr"] == pytest.approx(expected)


def test_elsewhere_all_learn_alike() -> None:
    optimizer = sgd(TinyDetector(), tiny_recipe(rpn_gradient="scale_input"))
    assert {group["rate_factor"] for group in optimizer.param_groups} == {1.0}


def test_frozen_parameters_are_left_out() -> None:
    detector = TinyDetector()
    detector.network.get_submodule("rpn").requires_grad_(False)
    optimizer = sgd(detector, tiny_recipe())
    counted = sum(len(group["params"]) for group in optimizer.param_groups)
    assert counted == len(list(detector.network.parameters())) - 2


def test_the_rate_rises_linearly_and_drops_at_each_milestone() -> None:
    rates = {i: learning_rate(COCO_FPN, i) for i in (0, 500, 1000, 59_999, 60_000, 89_999)}
    expected = [2e-5, 0.5 * (2e-5 + 0.02), 0.02, 0.02, 0.002, 0.0002]
    assert list(rates.values()) == pytest.approx(expected)


@pytest.mark.detectron2
@pytest.mark.parametrize(
    "recipe",
    [
        of_length(VOC_C4, 1 / 100),
        of_length(COCO_FPN, 1 / 200),
        replace(COCO_FPN, iterations=60, milestones=(20, 40), warmup_iterations=30),
    ],
)
def test_rates_equal_those_of_detectron2(recipe: DetectorRecipe) -> None:
    with silence_known_warnings():
        from detectron2.config import get_cfg
        from detectron2.solver import build_lr_scheduler
    solver = (cfg := get_cfg()).SOLVER
    solver.MAX_ITER, solver.STEPS = recipe.iterations, recipe.milestones
    solver.WARMUP_ITERS, solver.WARMUP_FACTOR = recipe.warmup_iterations, recipe.warmup_factor
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=recipe.learning_rate)
    scheduler = build_lr_scheduler(cfg, optimizer)
    for iteration in range(recipe.iterations):
        ours, theirs = learning_rate(recipe, iteration), optimizer.param_groups[0]["lr"]
        assert ours == pytest.approx(theirs, rel=1e-6)
        optimizer.step()
        if iteration + 1 < recipe.iterations:
            scheduler.step()


@pytest.mark.detectron2
def test_decay_equals_that_of_detectron2() -> None:
    with silence_known_warnings():
        from detectron2.solver.build import get_default_optimizer_params
    detector = TinyDetector()
    groups = get_default_optimizer_params(detector.network, weight_decay_norm=0.0)
    theirs = torch.optim.SGD(groups, lr=0.1, weight_decay=1e-4)
    ours = sgd(detector, tiny_recipe())
    for parameter in detector.network.parameters():
        expected = group_of(theirs, parameter)["weight_decay"]
        assert group_of(ours, parameter)["weight_decay"] == expected
