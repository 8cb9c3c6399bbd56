"""The networks that can be transferred: torchvision's ResNets with an ImageNet or a CIFAR stem.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385.
"""

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
"""C of each architecture, under torchvision's names."""


class BackboneError(ValueError):
    """Something is wrong with a checkpoint: what was found, what was expected, what to do."""


def build_resnet(arch: str, stem: Stem) -> ResNet:
    """Torchvision's network, randomly initialised, without classifier: (n, 3, H, W) -> (n, C)."""
    if arch not in FEATURE_DIM:
        raise BackboneError(
            f"architecture {arch!r} was asked for; known are {', '.join(FEATURE_DIM)}"
        )
    if stem not in STEMS:
        raise BackboneError(f"stem {stem!r} was asked for; known are {', '.join(STEMS)}")
    network = torchvision.models.get_model(arch, weights=None)
    network.fc = nn.Identity()
    if stem == "cifar":
        network.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        network.maxpool = nn.Identity()
    return network


def network_with(arch: str, stem: Stem, state_dict: Mapping[str, Tensor]) -> ResNet:
    """The network in eval mode, made of these very tensors; draws no random numbers."""
    with torch.device("meta"):
        network = build_resnet(arch, stem)
    network.load_state_dict(state_dict, assign=True)
    return network.eval()


@cache
def tensor_shapes(arch: str, stem: Stem) -> dict[str, tuple[int, ...]]:
    """Every name of the network's state dict with its shape. Allocates no weights."""
    with torch.device("meta"):
        network = build_resnet(arch, stem)
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def is_optional(name: str) -> bool:
    """Counters of training steps: evaluation never reads them, and many exporters drop them."""
    return name.endswith("num_batches_tracked")
