"""Checks of methods on a CPU: they pass, and mistakes in a method or its gradient fail."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pretrain.methods.simclr
from pretrain.checks import methods
from pretrain.checks.methods import against_cpu, in_bfloat16, smooth, smooth_start
from pretrain.checks.place import Place
from tests.tiny_methods import forward, tiny_batch, tiny_method


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(device=torch.device("cpu"), folder=tmp_path)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the checks a tiny method in place of a smoke recipe's."""

    def start(place: Place, name: str) -> object:
        method = tiny_method(name)
        return smooth(method).train(), tiny_batch(method)

    monkeypatch.setattr(methods, "smooth_start", start)
    methods.in_float32.cache_clear()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["simclr", "moco", "instdisc", "loocpp"])
def test_a_method_agrees_with_itself_in_another_layout(name: str, place: Place) -> None:
    outcome = against_cpu(place, name)
    assert outcome.status == "passed", outcome.reason
    assert 0 <= float(outcome.facts["loss_difference"]) < 1e-3


@pytest.mark.usefixtures("tiny")
def test_bfloat16_is_near_float32(place: Place) -> None:
    outcome = in_bfloat16(place, "simclr")
    assert outcome.status == "passed", outcome.reason


@pytest.mark.usefixtures("tiny")
def test_a_wrong_gradient_on_the_device_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is the only place where the mistake shows: a gradient that is 1 % too long."""
    move = methods.moved_to

    def with_mistake(*things: object) -> object:
        method, batch = move(*things)  # type: ignore[arg-type]
        last = list(method.parameters())[-1]
        last.register_hook(lambda gradient: 1.01 * gradient)
        return method, batch

    monkeypatch.setattr(methods, "moved_to", with_mistake)
    outcome = against_cpu(place, "simclr")
    assert outcome.status == "failed"
    assert "gradient of" in outcome.reason


@pytest.mark.usefixtures("tiny")
def test_a_loss_that_is_not_finite_in_bfloat16_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = pretrain.methods.simclr.SimCLR.forward

    def forward_in(self: object, *things: object) -> dict[str, Tensor]:
        metrics = right(self, *things)  # type: ignore[arg-type]
        low = torch.is_autocast_enabled("cpu")
        return {**metrics, "loss": metrics["loss"] * (torch.nan if low else 1)}

    monkeypatch.setattr(pretrain.methods.simclr.SimCLR, "forward", forward_in)
    outcome = in_bfloat16(place, "simclr")
    assert outcome.status == "failed"
    assert "nan" in outcome.reason


def test_a_smooth_network_has_no_kinks() -> None:
    method = smooth(tiny_method("simclr"))
    kinds = {type(module) for module in method.modules()}
    assert torch.nn.SiLU in kinds
    assert not kinds & {torch.nn.ReLU, torch.nn.MaxPool2d}
    assert forward(method, tiny_batch(method))["loss"].isfinite()


def test_a_start_is_that_of_the_smoke_recipe(place: Place) -> None:
    start: Callable[..., tuple[object, object]] = smooth_start.__wrapped__
    method, batch = start(place, "supervised")
    assert batch.views[0].shape == (16, 3, 32, 32)  # type: ignore[attr-defined]
    assert batch.labels is not None  # type: ignore[attr-defined]
    assert type(method).__name__ == "Supervised"
