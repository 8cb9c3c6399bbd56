"""Many heads on one backbone against ordinary networks: Xiao et al., arXiv:2008.05659."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock

from pretrain.parts.heads import HeadQueues, ProjectorHeads
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


def test_head_zero_is_the_given_network_and_the_others_are_not() -> None:
    given = build_resnet("resnet18", "cifar")[0].eval()
    expected = copy.deepcopy(given)(photos())
    network = BranchedResNet(given, 2).eval()
    assert_equal_up_to_rounding(network.head(0)(photos()), expected)
    assert (network.head(1)(photos()) - expected).abs().max() > 0.1


def test_projectors_share_a_plain_backbones_features() -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(192, 6))
    encoder = ProjectorHeads(backbone, 6, 4, 3)
    embeddings = encoder(photos())
    assert embeddings.shape == (2, 3, 4)
    for head, projector in enumerate(encoder.projectors):
        assert_equal_up_to_rounding(embeddings[:, head], projector(backbone(photos())))


def test_later_heads_are_all_but_the_first_which_is_not_computed() -> None:
    torch.manual_seed(0)
    frame = ResNet(BasicBlock, [1, 1, 1, 1])
    frame.fc = nn.Identity()
    network = BranchedResNet(frame, 3).eval()
    encoder = ProjectorHeads(network, 512, 4, 3)
    expected = encoder(photos())[:, 1:]
    calls = [0, 0, 0]

    def count(head: int) -> None:
        calls[head] += 1

    for head, branch in enumerate(network.layer4):
        branch.register_forward_hook(lambda *_, head=head: count(head))
    assert_equal_up_to_rounding(encoder(photos(), first=1), expected)
    assert calls == [0, 1, 1]


def test_each_queue_takes_its_own_heads_keys() -> None:
    torch.manual_seed(0)
    queues = HeadQueues(2, 5, 4)
    before = queues.keys()
    keys = normalize(torch.randn(2, 3, 4), dim=2)
    queues.push(keys)
    assert torch.equal(queues.keys()[:, :3], keys)
    assert torch.equal(queues.keys()[:, 3:], before[:, 3:])
    assert not torch.equal(before[0], before[1])
