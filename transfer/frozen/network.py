"""The frozen network: device, precision and forward pass.

In bfloat16, batch norms are folded into convolutions, which shortens the forward pass to a third or
a half. This changes 0.3 % of a ResNet-50's predictions at 224 px, and up to 3 % for networks after
one epoch, since their features are similar (docs/explanation/speed.md).
"""

import os
from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.models import ResNet

from transfer.encoders.encoder import Encoder

WORKSPACE_VARIABLE, WORKSPACE_MB = "CUDNN_CONV_WSCAP_DBG", "8192"
"""Environment variable and limit of a convolution's workspace.

The variable is listed in PyTorch's CUDA notes.

torch offers all free memory to cudnn and uses the fastest algorithm, regardless of its memory: on
an H200, voc12_seg_fcn took 79 GB in float32 and 5.8 GB in bfloat16. TensorFlow's limit is also 8 GB
(tensorflow#56055). The effect of this limit was not measured.
"""


def limit_workspaces() -> None:
    """Limit the workspace of convolutions, unless the user has set a limit.

    Every network of an evaluation calls it first, since cudnn may read the variable only once, at
    the first convolution of a process, and a process may evaluate frozen networks before it trains.
    """
    os.environ.setdefault(WORKSPACE_VARIABLE, WORKSPACE_MB)


def device() -> torch.device:
    """Return the GPU if there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def upload(values: Tensor, target_device: torch.device) -> Tensor:
    """Copy values from the CPU to a device without waiting for it."""
    # a copy from unpinned memory may wait for all previous work of the GPU
    return (values.pin_memory() if target_device.type == "cuda" else values).to(
        target_device, non_blocking=True
    )


def frozen_network(backbone: Encoder) -> nn.Module:
    """Return the backbone's network on the device, in channels-last layout."""
    limit_workspaces()
    network = backbone.network()
    if backbone.precision == "bfloat16":
        # other encoders have norm layers that cannot be folded, or none
        is_resnet = isinstance(network, ResNet)
        network = in_bfloat16(network) if is_resnet else network.to(torch.bfloat16)
    moved: nn.Module = network.to(device(), memory_format=torch.channels_last)
    return moved


def frozen_maps_network(backbone: Encoder, size_px: int) -> nn.Module:
    """Return the network for feature maps, on the device."""
    limit_workspaces()
    maps = backbone.maps_network(size_px)
    if backbone.precision == "bfloat16":
        if backbone.is_resnet:
            fold_norms(maps.network)
        maps.to(torch.bfloat16)
    return maps.to(device()).to(memory_format=torch.channels_last)


@torch.no_grad()
def forward(network: nn.Module, images: Tensor) -> Tensor:
    """Return float32 features (n, C) of images (n, 3, H, W).

    The network computes in its own precision.
    """
    tensors = chain(network.parameters(), network.buffers())
    # a network without parameters computes in float32
    default = torch.zeros((), dtype=torch.float32, device=device())
    weight = next((tensor for tensor in tensors if tensor.is_floating_point()), default)
    batch = images.to(
        weight.device, weight.dtype, memory_format=torch.channels_last, non_blocking=True
    )
    # a head on the features may be trained with autocast
    with torch.autocast(weight.device.type, enabled=False):
        features: Tensor = network(batch)
    return features.float()


class MeanInFloat32(nn.Module):
    """Global average pooling in float32."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return means (n, C, 1, 1) of maps (n, C, H, W)."""
        return maps.float().mean(dim=(2, 3), keepdim=True)


def fold_norms(network: ResNet) -> ResNet:
    """Fold batch norms into the previous convolutions (eval mode, in place)."""
    for module in list(network.modules()):
        # in torchvision's ResNet, a batch norm is the next child after its convolution
        for (conv_name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(module, norm_name, nn.Identity())
    return network


def in_bfloat16(network: ResNet) -> ResNet:
    """Fold batch norms and cast to bfloat16, in place."""
    fast = fold_norms(network).to(torch.bfloat16)
    fast.avgpool = MeanInFloat32()
    return fast
