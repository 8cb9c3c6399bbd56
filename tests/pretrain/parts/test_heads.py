"""Many heads on one backbone against ordinary networks: Xiao et al., arXiv:2008.05659."""

import torch
from torch import Tensor
from torchvision.models import ResNet

from pretrain.parts.resnet import BranchedResNet, build_resnet
from tests.rounding import assert_equal_up_to_rounding


def branched_resnet(*, num_heads: int = 3) -> BranchedResNet:
    torch.manual_seed(0)
    return BranchedResNet(build_resnet("resnet18", "cifar")[0], num_heads)


def photos() -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_names_are_torchvisions_with_the_head_behind_layer4() -> None:
    plain = build_resnet("resnet18", "cifar")[0].state_dict()
    expected = {name for name in plain if not name.startswith("layer4.")}
    for head in range(3):
        expected |= {name.replace("layer4.", f"layer4.{head}.") for name in plain if "yer4" in name}
    assert set(branched_resnet().state_dict()) == expected


def test_features_are_those_of_each_heads_ordinary_network_in_order() -> None:
    network = branched_resnet().eval()
    features = network(photos())
    assert features.shape == (2, 3 * 512)
    alone = [network.head(i) for i in range(3)]
    assert all(isinstance(head, ResNet) and not head.training for head in alone)
    assert_equal_up_to_rounding(features, torch.cat([head(photos()) for head in alone], dim=1))
