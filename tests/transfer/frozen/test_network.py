"""Folding changes the arithmetic, not the function."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from transfer.backbone import random_backbone
from transfer.frozen.network import fold_norms, in_bfloat16


@pytest.mark.parametrize(
    ("arch", "stem"),
    [("resnet18", "cifar"), ("resnet50", "imagenet"), ("resnet18-heads3", "cifar")],
)
def test_a_folded_network_computes_the_same_features_without_norms(arch: str, stem: str) -> None:
    network = random_backbone(arch=arch, stem=stem, seed=0).network().double()  # type: ignore[arg-type]
    torch.manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for name in ("running_mean", "bias"):
                nn.init.normal_(module.state_dict()[name], std=0.1)
            for name in ("running_var", "weight"):
                nn.init.uniform_(module.state_dict()[name], 0.5, 1.5)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    folded = fold_norms(deepcopy(network))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    with torch.no_grad():
        torch.testing.assert_close(folded(images), network(images))
        assert in_bfloat16(network)(images.bfloat16()).dtype == torch.float32
