"""Variants of ResNets compute what their sources say."""

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from transfer.convert.resnet import build_resnet
from transfer.topology.known_networks import NETWORKS, BlurPool

BY_NAME = {network.name: network for network in NETWORKS}
IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("dilated, output stride halved", [False, False, True]),
        ("dilated, output stride quartered", [False, True, True]),
    ],
)
def test_dilated_networks_are_torchvisions(name: str, replaced: list[bool]) -> None:
    network = build_resnet("resnet50", "imagenet").eval()
    expected = torchvision.models.resnet50(weights=None, replace_stride_with_dilation=replaced)
    expected.fc = nn.Identity()
    expected.load_state_dict(network.state_dict())
    BY_NAME[name].change(network)
    with torch.inference_mode():
        assert torch.equal(network(IMAGES), expected.eval()(IMAGES))


def test_blur_pool_is_the_binomial_filter_at_every_second_pixel() -> None:
    maps = torch.arange(2.0 * 6 * 6).reshape(1, 2, 6, 6).square()
    padded = F.pad(maps, (1, 1, 1, 1), mode="reflect")
    line = torch.tensor([1.0, 2.0, 1.0]) / 4
    expected = torch.zeros(1, 2, 3, 3)
    for y in range(3):
        for x in range(3):
            patch = padded[:, :, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3]
            expected[:, :, y, x] = torch.einsum("ncij,i,j->nc", patch, line, line)
    assert torch.equal(BlurPool()(maps), expected)  # all values are multiples of 1/16


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_an_anti_aliased_network_has_no_strided_3x3_convolution(arch: str) -> None:
    network = build_resnet(arch, "imagenet").eval()
    shape = network(IMAGES).shape
    BY_NAME["anti-aliased by blur-pool"].change(network)
    with torch.inference_mode():
        assert network(IMAGES).shape == shape
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    strided = {m.kernel_size for m in convolutions if m.stride == (2, 2)}
    assert strided == {(7, 7), (1, 1)}  # the stem and the shortcuts, as in timm
    assert {m.stride for m in convolutions} == {(1, 1), (2, 2)}
