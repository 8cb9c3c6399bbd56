"""Frozen features pass where only roundings differ, and fail in TF32 or with another weight."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from transfer.checks import features
from transfer.checks.report import CheckFailedError, Place
from transfer.frozen.network import frozen_network

SMALL = Place(device="cpu", folder=Path())


def with_changed_device(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[nn.Module], object]
) -> None:
    """Let the device's network differ from the CPU's."""

    def changed(backbone: object) -> nn.Module:
        network = frozen_network(backbone)  # type: ignore[arg-type]
        change(network)
        return network

    monkeypatch.setattr(features, "frozen_network", changed)


def in_tf32(network: nn.Module) -> None:
    """Round the factors of every convolution to the ten bits that TF32 keeps."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = rounded(module.weight.data)
            module.register_forward_pre_hook(lambda module, inputs: (rounded(inputs[0]),))


def rounded(values: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


def spoil_a_shift(network: nn.Module) -> None:
    """Change one shift of one norm by a tenth."""
    network.get_parameter("layer1.0.bn1.bias").data[0] += 0.1


def test_features_of_one_network_are_equal() -> None:
    assert features.check_float32("resnet18", SMALL)["features"] == 0.0


@pytest.mark.parametrize("change", [in_tf32, spoil_a_shift])
def test_features_in_tf32_or_of_other_weights_fail(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[nn.Module], object]
) -> None:
    with_changed_device(monkeypatch, change)
    with pytest.raises(CheckFailedError, match=r"features .* above"):
        features.check_float32("resnet18", SMALL)


def test_bfloat16_features_keep_their_direction() -> None:
    facts = features.check_bfloat16("resnet18", SMALL)
    assert 0 < float(facts["1 - cosine with float32"]) < float(facts["... with the CPU: bound"])


def test_another_direction_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "layer4.1.conv2.weight"
    with_changed_device(monkeypatch, lambda network: network.get_parameter(name).data.neg_())
    with pytest.raises(CheckFailedError, match="cosine"):
        features.check_bfloat16("resnet18", SMALL)
