"""Features by cuDNN's fused convolutions equal extracted ones."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from benchmarks.gpu.fused import cudnn_convolution, fused_features, fused_throughput
from transfer.encoders.encoder import random_backbone
from transfer.frozen.network import fold_norms, forward


def add_relu(
    maps: Tensor, weight: Tensor, z: Tensor, alpha: float, bias: Tensor | None, *shape: Any
) -> Tensor:
    """Compute aten::cudnn_convolution_add_relu on a CPU."""
    return (conv2d(maps, weight, bias, *shape) + alpha * z).relu()


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_fused_convolutions_give_equal_features(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cudnn_convolution_add_relu", add_relu)
    monkeypatch.setattr("torch.cudnn_convolution_relu", lambda *given: conv2d(*given).relu())
    torch.manual_seed(0)
    network = random_backbone(arch=arch, stem="imagenet", seed=0).network()
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for name in ("running_mean", "bias"):
                nn.init.normal_(getattr(norm, name), std=0.1)
            for name in ("running_var", "weight"):
                nn.init.uniform_(getattr(norm, name), 0.5, 1.5)
    images = torch.randn(2, 3, 64, 64)
    expected = forward(network, images)
    features = fused_features(fold_norms(network), images, cudnn_convolution)
    # folding rounds each weight once, and 53 layers add up what it changes
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_both_ways_are_measured_on_a_cpu() -> None:
    fields = fused_throughput(torch.device("cpu"), Path())
    assert sum("images/s" in name for name in fields) == 4
    assert float(fields["smallest cosine of their features"]) > 0.9999
