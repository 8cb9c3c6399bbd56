"""The frozen network: its device, its arithmetic and its forward pass.

In bfloat16, batch norms are folded into convolutions, which takes a third to a half of the time.
Of a ResNet-50's predictions at 224 px 0.3 % change; for networks after one epoch, whose features
are close together, up to 3 % (docs/explanation/speed.md).
"""

from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.models import ResNet

from transfer.encoders.encoder import Encoder


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def upload(values: Tensor, where: torch.device) -> Tensor:
    """Return values of the host on a device, without a wait for what the device does now."""
    # a copy to a GPU from memory that is not pinned may first wait for all work before it
    return (values.pin_memory() if where.type == "cuda" else values).to(where, non_blocking=True)


def frozen_network(backbone: Encoder) -> nn.Module:
    """Return the backbone's network on the device, in channels-last layout, which is fastest."""
    network = backbone.network()
    if backbone.precision == "bfloat16":
        # other encoders have norms that no convolution can take in, or none
        folds = isinstance(network, ResNet)
        network = in_bfloat16(network) if folds else network.to(torch.bfloat16)
    placed: nn.Module = network.to(device(), memory_format=torch.channels_last)
    return placed


def placed_maps(backbone: Encoder, size_px: int) -> nn.Module:
    """Return the network of the backbone's maps for images of a size, on the device."""
    network: nn.Module = backbone.maps_network(size_px)
    if backbone.precision == "bfloat16":
        network.to(torch.bfloat16)
    return network.to(device()).to(memory_format=torch.channels_last)


@torch.no_grad()
def forward(network: nn.Module, images: Tensor) -> Tensor:
    """Return features (n, C) float32 of images (n, 3, H, W), in the arithmetic of the network."""
    tensors = chain(network.parameters(), network.buffers())
    # a network of fixed functions has none
    weight = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    batch = images.to(
        device() if weight is None else weight.device,
        torch.float32 if weight is None else weight.dtype,
        memory_format=torch.channels_last,
        non_blocking=True,
    )
    features: Tensor = network(batch)
    return features.float()


class MeanInFloat32(nn.Module):
    """Global average pooling (n, C, H, W) -> (n, C, 1, 1) that does not round to bfloat16."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return the means (n, C, 1, 1) of maps (n, C, H, W) of any dtype, in float32."""
        return maps.float().mean(dim=(2, 3), keepdim=True)


def fold_norms(network: ResNet) -> ResNet:
    """Fold every norm of a network in eval mode into the convolution before it, in place."""
    for module in list(network.modules()):
        # in torchvision's networks a norm is the next child after the convolution it follows
        for (conv_name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(module, norm_name, nn.Identity())
    return network


def in_bfloat16(network: ResNet) -> ResNet:
    """Fold the norms and cast to bfloat16, in place; features (n, C) are float32."""
    fast = fold_norms(network).to(torch.bfloat16)
    fast.avgpool = MeanInFloat32()
    return fast
