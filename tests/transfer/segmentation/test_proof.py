"""The twin that the network is compared with: stride 1 and dilation in all of layer4."""

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models.resnet import Bottleneck

from transfer.convert.compare_maps import fixed_images, torchvision_maps
from transfer.segmentation.proof import dilate_layer4


def shortcut(num_in: int, num_out: int) -> nn.Module:
    """Return the shortcut of a first block, with stride 1."""
    return nn.Sequential(nn.Conv2d(num_in, num_out, 1, bias=False), nn.BatchNorm2d(num_out))


def test_the_twins_layer4_is_three_of_torchvisions_dilated_blocks() -> None:
    torch.manual_seed(0)
    twin = dilate_layer4(torchvision.models.resnet50(), 2).eval()
    blocks = nn.Sequential(
        Bottleneck(1024, 512, downsample=shortcut(1024, 2048), dilation=2),
        Bottleneck(2048, 512, dilation=2),
        Bottleneck(2048, 512, dilation=2),
    ).eval()
    blocks.load_state_dict(twin.layer4.state_dict())
    maps = torch.randn(1, 1024, 5, 7, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(twin.double().layer4(maps), blocks.double()(maps))


def test_the_twin_keeps_stride_and_shape_of_a_basic_block() -> None:
    twin = dilate_layer4(torchvision.models.resnet18(), 2).eval()
    maps = torchvision_maps(twin, fixed_images(), (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    assert maps["layer4"].shape[2:] == maps["layer3"].shape[2:] == (4, 6)


@pytest.mark.parametrize(("arch", "convolution"), [("resnet18", "conv1"), ("resnet50", "conv2")])
def test_one_convolution_of_each_block_and_the_shortcut_are_altered(
    arch: str, convolution: str
) -> None:
    plain, twin = (getattr(torchvision.models, arch)() for _ in range(2))
    dilate_layer4(twin, 2)
    altered = {
        name
        for name, module in twin.named_modules()
        if not list(module.children()) and repr(module) != repr(plain.get_submodule(name))
    }
    blocks = {f"layer4.{number}.{convolution}" for number in range(len(plain.layer4))}
    assert altered == blocks | {"layer4.0.downsample.0"}
    found = [twin.get_submodule(name) for name in blocks]
    assert {(c.stride, c.dilation, c.padding) for c in found} == {((1, 1), (2, 2), (2, 2))}
