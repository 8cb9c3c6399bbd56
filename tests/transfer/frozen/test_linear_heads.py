"""Heads trained together, or resumed, equal heads trained alone."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.optim import build_optimizer
from pretrain.recipes import RECIPES
from pretrain.running import stop
from transfer.datasets.catalog import open_split
from transfer.encoders.encoder import Encoder
from transfer.frozen.classifier import Heads
from transfer.frozen.feature_cache import Features, Predictions
from transfer.frozen.linear_heads import Pass, train_and_score
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.running_probe import HeadOptimizer, RunningProbe, new_heads
from transfer.metrics import top1

CPU = torch.device("cpu")
RATES = (0.1, 1.0, 10.0)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(16, 8, generator=generator, dtype=torch.float64),
            torch.randint(0, 5, (16,), generator=generator),
        )
        for _ in range(count)
    ]


def start(rates: tuple[float, ...] = RATES) -> Heads:
    heads = new_heads(rates, num_classes=5, width=8, std=0.01, seed=3)
    return Heads(heads.weight.double(), heads.bias.double())


def train(training: ProbeTraining) -> Heads:
    optimizer = HeadOptimizer(start(training.learning_rates), training, CPU)
    for step, (features, labels) in enumerate(batches(training.steps)):
        optimizer.step(features, labels, step / training.steps)
    return optimizer.heads()


Optimizer = torch.optim.Optimizer


def assert_trained_alone(
    heads: Heads, index: int, optimizer_of: Callable[[nn.Module], Optimizer], rates: list[float]
) -> None:
    """Compare a head with the steps of a separate optimizer.

    Tolerance: float64 roundings, which twenty steps may enlarge a thousand times.
    """
    head = nn.Linear(8, 5, dtype=torch.float64)
    head.load_state_dict({"weight": start().weight[0], "bias": start().bias[0]})
    optimizer = optimizer_of(head)
    for rate, (features, labels) in zip(rates, batches(20), strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        F.cross_entropy(head(features), labels).backward()
        optimizer.step()
    for result, expected in ((heads.weight, head.weight), (heads.bias, head.bias)):
        torch.testing.assert_close(result[index], expected.detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_each_head_equals_torch_sgd_of_its_own_with_its_own_decay(weight_decay: float) -> None:
    training = ProbeTraining(
        learning_rates=RATES,
        steps=20,
        weight_decay=weight_decay,
        decays=("cosine", "step", "cosine"),
    )
    together = train(training)

    def sgd(head: nn.Module) -> Optimizer:
        return torch.optim.SGD(head.parameters(), momentum=0.9, weight_decay=weight_decay)

    for index, rate in enumerate(RATES):
        cosine = [rate * 0.5 * (1 + math.cos(math.pi * step / 20)) for step in range(20)]
        stepped = [rate * 0.1 ** ((step >= 12) + (step >= 16)) for step in range(20)]
        rates = stepped if index == 1 else cosine
        assert_trained_alone(together, index, sgd, rates)


def test_a_probe_that_is_fed_in_parts_takes_its_optimizers_steps() -> None:
    training = ProbeTraining(learning_rates=RATES, steps=10, batch_size=16)
    probe = RunningProbe(training, 160, start(), CPU)
    for step, (features, labels) in enumerate(batches(10)):
        for first in (0, 6, 12):
            part = slice(first, first + 6)
            probe.receive(16 * step + first, features[part], labels[part])
    assert torch.equal(probe.optimizer.heads().weight, train(training).weight)


def test_lars_is_that_of_pre_training_for_each_head_alone() -> None:
    """A head whose bias is an ordinary tensor, as in apex's LARC."""
    training = ProbeTraining(
        learning_rates=RATES, steps=20, optimizer="lars", trust_coefficient=0.02, weight_decay=0.01
    )
    together = train(training)
    recipe = replace(RECIPES["swav/in1k-r50"], weight_decay=0.01, trust_coefficient=0.02)
    lars = partial(build_optimizer, recipe=recipe)
    for index, rate in enumerate(RATES):
        rates = [rate * training.rate_factors(step / 20)[index] for step in range(20)]
        assert_trained_alone(together, index, lars, rates)


def test_a_epoch_ends_with_the_step_nearest_to_its_last_image() -> None:
    for images, batch, epochs, ends in [
        (1_281_167, 256, 100.0, [5005, 10009, 15014]),  # 5004.6 steps a pass
        (10, 4, 2.0, [2, 5]),
        (10, 4, 0.1, [1]),
    ]:
        training = ProbeTraining(learning_rates=(1.0,), epochs=epochs, batch_size=batch)
        assert training.epoch_ends(images)[:3] == ends
        assert training.epoch_ends(images)[-1] == training.num_steps(images)


@pytest.fixture
def score(small_backbone: Encoder, small_data: Path) -> Callable[..., Predictions]:
    """Return a function that trains some epochs and scores six images."""
    images = open_split("cars", small_data, "train").subset(range(16))

    def scored(folder: Path, labels: Tensor = LABELS, epochs: int = 3) -> Predictions:
        training = ProbeTraining(learning_rates=(1.0,), epochs=epochs, batch_size=8, crop_px=32)
        test = Features(TEST, labels)
        shared = Pass(small_backbone, images, training, 0, folder, test)
        return train_and_score(shared, test, folder)

    return scored


TEST, LABELS = torch.randn(6, 512), torch.arange(6) % 3


def test_interrupted_probe_has_the_same_curve(
    score: Callable[..., Predictions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = score(tmp_path / "whole")
    passes = whole.details["top1_after_each_pass"]
    assert len(passes) == 3
    assert whole.details["best_top1"] == max(passes)
    assert passes[-1] == top1(whole.scores, LABELS)
    answers = iter([False, False, True])
    with monkeypatch.context() as patch:
        patch.setattr(stop, "is_requested", lambda: next(answers))
        patch.setattr(stop, "_received_signals", [15])
        with pytest.raises(stop.Stopped):
            score(tmp_path / "parts")
    for folder in ("parts", "whole"):  # the latter is found again, not made again
        again = score(tmp_path / folder)
        assert torch.equal(again.scores, whole.scores)
        assert again.details == whole.details


def test_the_curve_of_other_test_features_is_not_told(
    score: Callable[..., Predictions], tmp_path: Path
) -> None:
    repaired = (LABELS + 1) % 3
    score(tmp_path, epochs=2)
    result = score(tmp_path, repaired, epochs=2)
    assert not {"top1_after_each_pass", "best_top1", "best_pass"} & result.details.keys()
    score(tmp_path, epochs=1)
    result = score(tmp_path, repaired, epochs=1)  # the only pass ends with the final weights
    ours = top1(result.scores, repaired)
    assert (result.details["top1_after_each_pass"], result.details["best_top1"]) == ([ours], ours)
