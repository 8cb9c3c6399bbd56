"""Compare feature extraction with and without cuDNN's fused convolutions.

A fused convolution adds bias and shortcut and applies ReLU. The extraction of the suite folds batch
norm into the convolutions, but bias, sum and ReLU are separate passes over the maps.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torchvision.models import ResNet

from benchmarks.gpu.timing import Quantities, seconds_per_call
from transfer.encoders.encoder import random_backbone
from transfer.frozen.network import forward, frozen_network

Convolution = Callable[[nn.Conv2d, Tensor, Tensor | None], Tensor]
"""Function: ReLU of a convolution plus the shortcut, if there is one."""


def cudnn_convolution(conv: nn.Conv2d, maps: Tensor, shortcut: Tensor | None) -> Tensor:
    """Compute a `Convolution` in one kernel of cuDNN."""
    shape: Any = conv.stride, conv.padding, conv.dilation, conv.groups
    if shortcut is None:
        return torch.cudnn_convolution_relu(maps, conv.weight, conv.bias, *shape)
    return torch.cudnn_convolution_add_relu(maps, conv.weight, shortcut, 1.0, conv.bias, *shape)


def plain_convolution(conv: nn.Conv2d, maps: Tensor, shortcut: Tensor | None) -> Tensor:
    """Compute a `Convolution` in separate steps, for devices without cuDNN."""
    outputs: Tensor = conv(maps)
    return (outputs if shortcut is None else outputs + shortcut).relu()


@torch.no_grad()
def fused_features(network: ResNet, images: Tensor, convolution: Convolution) -> Tensor:
    """Return features (n, C) in float32 of a network with folded norms."""
    maps = network.maxpool(convolution(network.conv1, images, None))
    for stage in (network.layer1, network.layer2, network.layer3, network.layer4):
        for block in stage:
            shortcut = maps if block.downsample is None else block.downsample(maps)
            *first, last = [layer for layer in block.children() if isinstance(layer, nn.Conv2d)]
            for conv in first:
                maps = convolution(conv, maps, None)
            maps = convolution(last, maps, shortcut)
    features: Tensor = network.avgpool(maps).flatten(1)
    return features.float()


def fused_throughput(device: torch.device, folder: Path) -> Quantities:
    """Time both ways on images in device memory; compare their features."""
    on_gpu = device.type == "cuda"
    arch, batch, px, calls = ("resnet50", 256, 224, 30) if on_gpu else ("resnet18", 2, 64, 1)
    backbone = random_backbone(arch=arch, stem="imagenet", seed=0)
    network = frozen_network(replace(backbone, precision="bfloat16"))
    assert isinstance(network, ResNet)
    images = torch.randn(batch, 3, px, px, device=device).to(torch.bfloat16)
    images = images.contiguous(memory_format=torch.channels_last)
    convolution = cudnn_convolution if on_gpu else plain_convolution
    variants: dict[str, Callable[[], Tensor]] = {
        "as it is": partial(forward, network, images),
        "fused": partial(fused_features, network, images, convolution),
    }
    quantities: Quantities = {}
    for search in (False, True):  # extractions use cuDNN without a search for algorithms
        with torch.backends.cudnn.flags(enabled=True, benchmark=search):
            for variant, call in variants.items():
                seconds = seconds_per_call(call, device, warm_up=3, calls=calls)
                name = f"images/s {variant}{', after a search' if search else ''}"
                quantities[name] = batch / seconds
    cosines = cosine_similarity(variants["fused"](), variants["as it is"]())
    return quantities | {"smallest cosine of their features": cosines.min().item()}
