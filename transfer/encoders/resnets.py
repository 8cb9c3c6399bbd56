"""Build torchvision's ResNets with their stems.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385. Files in our
format may have several copies of layer4: Xiao et al., ICLR 2021, arXiv:2008.05659 (LooC++).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import Bottleneck

from transfer.encoders.architectures import (
    SIZES,
    STEMS,
    BackboneError,
    Stem,
    has_max_pool,
    is_large,
    network_and_heads,
)
from transfer.encoders.verify import check_response, fill, fixed_images


class Branches(nn.ModuleList):
    """Copies of layer4 on the same input, with concatenated channels.

    (n, C', H, W) -> (n, h * C, H', W') for h heads; pooling gives the heads' concatenated features.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return the concatenated maps (n, h * C, H, W)."""
        return torch.cat([branch(maps) for branch in self], dim=1)


class WidenedResNet50(ResNet):  # type: ignore[misc]  # torchvision has no types
    """ResNet-50 with multiplied channels in every layer, as in SwAV and VICReg."""

    def __init__(self, widening: int, norm_layer: Callable[..., nn.Module] | None = None) -> None:
        self.widening = widening
        super().__init__(Bottleneck, [3, 4, 6, 3], norm_layer=norm_layer)
        channels = 64 * widening
        self.conv1 = nn.Conv2d(3, channels, kernel_size=7, stride=2, padding=3, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.bn1 = (norm_layer or nn.BatchNorm2d)(channels)

    def _make_layer(self, block: Any, planes: int, *sizes: int, **options: Any) -> nn.Sequential:
        """Return a stage with a multiple of torchvision's channels."""
        if planes == 64:  # the first stage follows the stem, which is also widened
            self.inplanes = planes * self.widening
        stage: nn.Sequential = super()._make_layer(block, planes * self.widening, *sizes, **options)
        return stage


def new_network(arch: str, norm_layer: Callable[..., nn.Module] | None = None) -> ResNet:
    """Return a network with classifier and random weights, without extra heads."""
    if (widening := SIZES[arch].widening) > 1:
        return WidenedResNet50(widening, norm_layer)
    network: ResNet = torchvision.models.get_model(arch, weights=None, norm_layer=norm_layer)
    return network


def build_resnet(arch: str, stem: Stem) -> ResNet:
    """Return the network (n, 3, H, W) -> (n, C), randomly initialized."""
    name, num_heads = network_and_heads(arch)
    if stem not in STEMS:
        raise BackboneError(f"unknown stem {stem!r}; expected one of {', '.join(STEMS)}")
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
        copies = (new_network(name).layer4 for _ in range(num_heads - 1))
        network.layer4 = Branches([network.layer4, *copies])
    return network


def network_with(arch: str, stem: Stem, state_dict: Mapping[str, Tensor]) -> ResNet:
    """Return the network in eval mode with these tensors, not copied.

    No random numbers are drawn. state_dict: names and shapes as in `tensor_shapes`. Raises
    BackboneError unless the features depend on the image.
    """
    with torch.device("meta"):  # skips the initialization, which draws random numbers
        network = build_resnet(arch, stem)
    fill(network, state_dict)
    network.eval()
    with torch.no_grad():
        check_response(network(fixed_images().to(network.conv1.weight.device)))
    return network
