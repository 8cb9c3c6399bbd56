"""The networks that can be transferred: torchvision's ResNets with an ImageNet or a CIFAR stem.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385. Our own
files may hold several copies of layer4: Xiao et al., ICLR 2021, arXiv:2008.05659 (LooC++).
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Literal

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import ResNet

Stem = Literal["imagenet", "cifar"]
"""imagenet: 7x7 convolution of stride 2, then max-pool; cifar: 3x3 of stride 1, no max-pool."""

STEMS: tuple[Stem, ...] = ("imagenet", "cifar")

FEATURE_DIM = {
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet101": 2048,
    "resnet152": 2048,
}
"""Feature dimension C of each architecture, by torchvision's names."""

MANY_HEADS = re.compile(r"(.+)-heads([1-9][0-9]?)")
"""Pattern of architectures with copies of layer4, such as resnet50-heads4 with four."""


class BackboneError(ValueError):
    """Error in a checkpoint; the message says what was found, what was expected and what to do."""


class Branches(nn.ModuleList):
    """Copies of layer4 on the same input, with their outputs concatenated along the channels.

    (n, C', H, W) -> (n, h * C, H', W') for h heads; pooling gives the heads' concatenated features.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return the concatenated maps (n, h * C, H, W) of all h copies."""
        return torch.cat([branch(maps) for branch in self], dim=1)


def network_and_heads(arch: str) -> tuple[str, int]:
    """Return torchvision's name and the number of heads, 0 for an ordinary network.

    resnet50-heads4 gives resnet50 and 4. BackboneError for an unknown name.
    """
    several = MANY_HEADS.fullmatch(arch)
    name, num_heads = (several[1], int(several[2])) if several else (arch, 0)
    if name not in FEATURE_DIM:
        raise BackboneError(
            f"architecture {arch!r} was asked for; known are {', '.join(FEATURE_DIM)}, and each "
            f"with 1 to 99 copies of layer4, such as resnet50-heads4"
        )
    return name, num_heads


def feature_dim(arch: str) -> int:
    """Return the feature dimension C, the sum over all heads."""
    name, num_heads = network_and_heads(arch)
    return FEATURE_DIM[name] * max(1, num_heads)


def build_resnet(arch: str, stem: Stem) -> ResNet:
    """Return torchvision's network without classifier, (n, 3, H, W) -> (n, C), random weights."""
    name, num_heads = network_and_heads(arch)
    if stem not in STEMS:
        raise BackboneError(f"stem {stem!r} was asked for; known are {', '.join(STEMS)}")
    network = torchvision.models.get_model(name, weights=None)
    network.fc = nn.Identity()
    if stem == "cifar":
        network.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = nn.Identity()
    if num_heads:
        others = (torchvision.models.get_model(name, weights=None) for _ in range(num_heads - 1))
        network.layer4 = Branches([network.layer4, *(other.layer4 for other in others)])
    return network


def network_with(arch: str, stem: Stem, state_dict: Mapping[str, Tensor]) -> ResNet:
    """Return the network in eval mode with these tensors, not copies; draw no random numbers.

    state_dict: torchvision's names and shapes, those of `tensor_shapes`.
    """
    with torch.device("meta"):  # no initialization, which would draw random numbers
        network = build_resnet(arch, stem)
    network.load_state_dict(state_dict, assign=True)
    return network.eval()


@cache
def tensor_shapes(arch: str, stem: Stem) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor in the network's state dict; allocate no weights."""
    with torch.device("meta"):
        network = build_resnet(arch, stem)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def is_optional(name: str) -> bool:
    """Return whether a tensor is a step counter: never read in evaluation, often not exported."""
    return name.endswith("num_batches_tracked")
