"""Folding changes the arithmetic, not the function."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.gpu.test_frozen import lived_in_backbone
from transfer.frozen.network import fold_norms, forward, frozen_maps_network, in_bfloat16


@pytest.mark.parametrize("arch", ["resnet18", "resnet50", "resnet18-heads3"])
def test_a_folded_network_computes_the_same_features_without_norms(arch: str) -> None:
    network = lived_in_backbone(arch).network().double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    folded = fold_norms(deepcopy(network))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    with torch.no_grad():
        torch.testing.assert_close(folded(images), network(images))
        assert in_bfloat16(network)(images.bfloat16()).dtype == torch.float32


def test_maps_in_bfloat16_are_of_a_folded_network() -> None:
    backbone = lived_in_backbone("resnet18")
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    expected = forward(frozen_maps_network(backbone, 64), images)
    network = frozen_maps_network(replace(backbone, precision="bfloat16"), 64)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    cosine = torch.nn.functional.cosine_similarity(forward(network, images), expected)
    # n roundings by up to 2^-9 turn a vector by sqrt(n) * 2^-9; 20 convolutions round twice
    assert cosine.min() > 1 - 40 * 2.0**-18
