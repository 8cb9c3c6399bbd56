"""Weight decay and learning rates of each parameter are detectron2's."""

import pytest
import torch
from torch import nn

from tests.transfer.detection.tiny_training import TinyDetector, tiny_recipe
from transfer.detection.recipe import COCO_FPN
from transfer.finetuning.schedule import learning_rate, set_learning_rate


def group_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, object]:
    (result,) = (g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    return result


def test_all_but_norms_decays_biases_too() -> None:
    detector = TinyDetector()
    optimizer = detector.optimizer(tiny_recipe(weight_decay=0.01))
    decays = {
        name: group_of(optimizer, parameter)["weight_decay"]
        for name, parameter in detector.named_parameters()
    }
    assert {name for name, decay in decays.items() if decay == 0} == {"norm.weight", "norm.bias"}
    assert {decay for decay in decays.values() if decay} == {0.01}


def test_the_rpn_learns_at_a_share_of_the_rate_where_that_is_the_reading() -> None:
    detector = TinyDetector()
    recipe = tiny_recipe(rpn_gradient="lr_mult", rpn_gradient_factor=0.1)
    optimizer = detector.optimizer(recipe)
    set_learning_rate(optimizer, 0.5)
    for name, parameter in detector.named_parameters():
        expected = 0.05 if name.startswith("rpn.") else 0.5
        assert group_of(optimizer, parameter)["lr"] == pytest.approx(expected)


def test_the_rate_rises_linearly_and_drops_at_each_milestone() -> None:
    rates = {i: learning_rate(COCO_FPN, i) for i in (0, 500, 1000, 59_999, 60_000, 89_999)}
    expected = [2e-5, 0.5 * (2e-5 + 0.02), 0.02, 0.02, 0.002, 0.0002]
    assert list(rates.values()) == pytest.approx(expected)
