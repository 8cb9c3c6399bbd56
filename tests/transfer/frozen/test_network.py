"""Folding changes the arithmetic, not the function."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from tests.gpu.test_frozen import lived_in_backbone
from transfer.frozen.network import fold_norms, in_bfloat16


@pytest.mark.parametrize("arch", ["resnet18", "resnet50", "resnet18-heads3"])
def test_a_folded_network_computes_the_same_features_without_norms(arch: str) -> None:
    network = lived_in_backbone(arch).network().double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    folded = fold_norms(deepcopy(network))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    with torch.no_grad():
        torch.testing.assert_close(folded(images), network(images))
        assert in_bfloat16(network)(images.bfloat16()).dtype == torch.float32
