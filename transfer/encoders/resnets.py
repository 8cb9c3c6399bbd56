"""The networks of the architectures: torchvision's ResNets with their stems.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385. Our own
files may hold several copies of layer4: Xiao et al., ICLR 2021, arXiv:2008.05659 (LooC++).
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import Bottleneck

from transfer.encoders.architectures import (
    STEMS,
    WIDENING,
    BackboneError,
    Stem,
    has_max_pool,
    is_large,
    network_and_heads,
)
from transfer.encoders.verify import fill


class Branches(nn.ModuleList):
    """Copies of layer4 on the same input, with their outputs concatenated along the channels.

    (n, C', H, W) -> (n, h * C, H', W') for h heads; pooling gives the heads' concatenated features.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return the concatenated maps (n, h * C, H, W) of all h copies."""
        return torch.cat([branch(maps) for branch in self], dim=1)


class WidenedResNet50(ResNet):  # type: ignore[misc]  # torchvision has no types
    """ResNet-50 with a multiple of the channels in every layer, as SwAV and VICReg widen it."""

    def __init__(self, widening: int, norm_layer: Callable[..., nn.Module] | None = None) -> None:
        self.widening = widening
        super().__init__(Bottleneck, [3, 4, 6, 3], norm_layer=norm_layer)
        channels = 64 * widening
        self.conv1 = nn.Conv2d(3, channels, kernel_size=7, stride=2, padding=3, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.bn1 = (norm_layer or nn.BatchNorm2d)(channels)

    def _make_layer(self, block: Any, planes: int, *sizes: int, **options: Any) -> nn.Sequential:
        """Return a stage with the multiple of torchvision's channels."""
        if planes == 64:  # the first stage follows the stem, which is widened as well
            self.inplanes = planes * self.widening
        stage: nn.Sequential = super()._make_layer(block, planes * self.widening, *sizes, **options)
        return stage


def new_network(arch: str, norm_layer: Callable[..., nn.Module] | None = None) -> ResNet:
    """Return a network with one layer4, a classifier and random weights; `arch` without heads."""
    if arch in WIDENING:
        return WidenedResNet50(WIDENING[arch], norm_layer)
    network: ResNet = torchvision.models.get_model(arch, weights=None, norm_layer=norm_layer)
    return network


def build_resnet(arch: str, stem: Stem) -> ResNet:
    """Return torchvision's network without classifier, (n, 3, H, W) -> (n, C), random weights."""
    name, num_heads = network_and_heads(arch)
    if stem not in STEMS:
        raise BackboneError(f"stem {stem!r} was asked for; known are {', '.join(STEMS)}")
    network = new_network(name)
    network.fc = nn.Identity()
    if not is_large(stem):
        padding = 2 if stem == "cifar-pad2" else 1
        network.conv1 = nn.Conv2d(
            3, network.conv1.out_channels, kernel_size=3, padding=padding, bias=False
        )
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    if not has_max_pool(stem):
        network.maxpool = nn.Identity()
    if num_heads:
        others = (new_network(name) for _ in range(num_heads - 1))
        network.layer4 = Branches([network.layer4, *(other.layer4 for other in others)])
    return network


def network_with(arch: str, stem: Stem, state_dict: Mapping[str, Tensor]) -> ResNet:
    """Return the network in eval mode with these tensors, not copies; draw no random numbers.

    state_dict: torchvision's names and shapes, those of `tensor_shapes`.
    """
    with torch.device("meta"):  # no initialization, which would draw random numbers
        network = build_resnet(arch, stem)
    fill(network, state_dict)
    return network.eval()


@cache
def tensor_shapes(arch: str, stem: Stem) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor in the network's state dict; allocate no weights."""
    if not is_large(stem):
        shapes = tensor_shapes(arch, "imagenet")
        return shapes | {"conv1.weight": (*shapes["conv1.weight"][:2], 3, 3)}
    with torch.device("meta"):
        network = build_resnet(arch, stem)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def meta_tensors(arch: str, stem: Stem) -> dict[str, Tensor]:
    """Return the network's tensors without values, in its order."""
    return {
        name: torch.empty(shape, device="meta", dtype=torch.float32 if shape else torch.int64)
        for name, shape in tensor_shapes(arch, stem).items()
    }
