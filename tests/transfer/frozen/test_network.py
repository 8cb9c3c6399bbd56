"""Folding changes the arithmetic, not the function; bfloat16 changes directions little."""

import pytest
import torch
from torch import Tensor, nn

from transfer.backbone import Backbone, random_backbone
from transfer.frozen.network import fold_norms, in_bfloat16


def with_lived_in_norms(arch: str, stem: str) -> Backbone:
    """A random network whose norms have means, variances, scales and shifts of their own."""
    backbone = random_backbone(arch=arch, stem=stem, seed=0)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    for name, tensor in backbone.state_dict.items():
        if name.endswith(("running_mean", "bn1.bias", "bn2.bias")):
            tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
        elif name.endswith(("running_var", "bn1.weight", "bn2.weight")):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return backbone


def images(count: int, px: int = 32) -> Tensor:
    return torch.randn(count, 3, px, px, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("arch", "stem"),
    [("resnet18", "cifar"), ("resnet50", "imagenet"), ("resnet18-heads3", "cifar")],
)
def test_a_folded_network_computes_the_same_features_without_norms(arch: str, stem: str) -> None:
    backbone = with_lived_in_norms(arch, stem)
    exact = backbone.network().double()
    network = fold_norms(backbone.network().double())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    with torch.no_grad():
        torch.testing.assert_close(network(images(2).double()), exact(images(2).double()))


def test_bfloat16_keeps_directions() -> None:
    backbone = with_lived_in_norms("resnet18", "cifar")
    centers = images(4).repeat_interleave(16, dim=0)
    pixels = centers + 0.3 * torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        exact = backbone.network()(pixels)
        fast = in_bfloat16(backbone.network())(pixels.to(torch.bfloat16))
    assert fast.dtype == torch.float32
    # forty roundings by 2^-9 at most, of weights and maps: sqrt(40) * 2^-9 is an angle of 0.012,
    # whose cosine is 0.99992
    assert torch.cosine_similarity(exact, fast).min() > 0.9999
