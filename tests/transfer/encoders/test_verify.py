"""A network whose features say nothing about its images is refused."""

from pathlib import Path

import pytest
import torch

from tests.transfer.encoders.conftest import load, weights
from transfer.encoders.architectures import BackboneError


@pytest.mark.parametrize("name", ["", "conv1.weight", "layer4.1.bn2.weight"])
def test_a_network_that_does_not_see_the_image_is_refused(name: str, file: Path) -> None:
    """Weights with zeros, or with a constant last block."""
    raw = weights()
    zeroed = {key: tensor * (name not in key) for key, tensor in raw.items()}
    if name == "layer4.1.bn2.weight":  # without its shortcut's part
        zeroed["layer4.1.bn2.bias"] = torch.full((512,), -1e9)
    with pytest.raises(BackboneError, match="do not depend on the image"):
        load(zeroed, file).network()


def test_features_that_are_not_finite_are_refused(file: Path) -> None:
    raw = weights()
    raw["bn1.running_var"] = torch.full((64,), -1.0)
    with pytest.raises(BackboneError, match="not finite"):
        load(raw, file).network()
