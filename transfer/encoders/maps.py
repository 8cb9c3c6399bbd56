"""Maps of an encoder: (n, 3, S, S) -> (n, C, h, w).

They are the patch tokens or the output of the last convolution. Class, distillation and register
tokens are dropped. The network's final norm is applied at each position, even if the network itself
pools before it. If the image size differs from the network's own, its position embeddings are
resampled, by the same method for all sources (`POSITIONS`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from transfer.encoders.architectures import BackboneError
from transfer.encoders.modules import described
from transfer.encoders.pooling import MapsFunction, as_maps

if TYPE_CHECKING:
    from transfer.encoders.encoder import Encoder

POSITIONS = "bicubic, antialias, by size"
"""Resampling of position embeddings (timm's method), a part of the protocols."""
NAMES = ("pos_embed", "position_embeddings", "pos_embedding")
MEASURED_PX = 448
"""Image size for measuring the stride: divisible by strides 14 and 32."""


class Maps(nn.Module):
    """An encoder's network for images of one size.

    Raises BackboneError if it does not return maps.
    """

    def __init__(self, network: nn.Module, maps: MapsFunction) -> None:
        super().__init__()
        self.network, self.maps = network, maps

    def forward(self, images: Tensor) -> Tensor:
        """Return maps (n, C, h, w) of images (n, 3, S, S)."""
        maps: Any = self.maps(self.network, images)
        if not isinstance(maps, Tensor) or maps.ndim != 4 or len(maps) != len(images):
            raise BackboneError(
                f"its maps are {described(maps)} for images {tuple(images.shape)}; expected "
                "(n, C, h, w)"
            )
        return maps


def measured_stride(encoder: Encoder) -> int:
    """Return the stride of the maps in px.

    Raises BackboneError if the encoder does not return square maps.
    """
    network = encoder.maps_network(MEASURED_PX, weights=False)
    try:
        with torch.no_grad():
            maps = network(torch.zeros(1, 3, MEASURED_PX, MEASURED_PX))
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise BackboneError(f"it does not accept {MEASURED_PX} px images: {reason}") from error
    height, width = map(int, maps.shape[2:])
    if height != width:
        raise BackboneError(f"its maps of a square image are {height} x {width}")
    if MEASURED_PX % height:  # unpadded convolutions crop the border
        return int(2 ** round(math.log2(MEASURED_PX / height)))
    return MEASURED_PX // height


def resnet_maps(network: Any, images: Tensor) -> Tensor:
    """Return layer4's maps (n, C, H / 32, W / 32)."""
    x = network.maxpool(network.relu(network.bn1(network.conv1(images))))
    maps: Tensor = network.layer4(network.layer3(network.layer2(network.layer1(x))))
    return maps


def timm_maps(network: Any, images: Tensor) -> Tensor:
    """Return normalized maps of a timm network.

    If the network pools before its last norm, this norm is `fc_norm` or in the head.
    """
    features = network.forward_features(images)
    for norm in (
        getattr(network, "fc_norm", None),
        getattr(getattr(network, "head", None), "norm", None),
    ):
        if isinstance(norm, nn.LayerNorm):  # timm's LayerNorm for maps is a subclass
            features = norm(features)
    return as_maps(features, network)


def transformers_maps(network: Any, images: Tensor, options: Mapping[str, bool]) -> Tensor:
    """Return normalized maps of a transformers model, called with these options."""
    features = network(pixel_values=images, **options).last_hidden_state
    norm = getattr(network, "layernorm", None)
    if features.ndim == 4 and isinstance(norm, nn.LayerNorm):  # ConvNeXt pools before this norm
        features = norm(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return as_maps(features, network)


def torchvision_maps(network: Any, images: Tensor) -> Tensor:
    """Return normalized maps of a torchvision network.

    It may be a ViT, a Swin, a ConvNeXt or another network with `features`.
    """
    if hasattr(network, "class_token"):
        patches = network._process_input(images)
        cls = network.class_token.expand(len(images), -1, -1)
        return as_maps(network.encoder(torch.cat([cls, patches], dim=1)), network, prefix=1)
    if not hasattr(network, "features"):
        raise BackboneError(f"torchvision's {type(network).__name__} has no `features`")
    maps: Tensor = network.features(images)
    if hasattr(network, "permute"):  # Swin's maps have channels last
        return network.permute(network.norm(maps))  # type: ignore[no-any-return]
    first = next(network.classifier.children(), None)
    return first(maps) if isinstance(first, nn.LayerNorm) else maps


def resize_input(network: Any, size_px: int) -> None:
    """Change a network's image size in place, with resampled position embeddings.

    timm networks do this themselves, with the method of POSITIONS. Raises BackboneError for
    position embeddings of unknown layout.
    """
    if callable(set_input_size := getattr(network, "set_input_size", None)):
        set_input_size(img_size=(size_px, size_px))
        return
    patch = getattr(network, "patch_size", None) or getattr(
        getattr(network, "config", None), "patch_size", None
    )
    for name, values in list(network.named_parameters()):
        parent, _, last = name.rpartition(".")
        if "position_embedding." in name:
            raise BackboneError(f"its position embeddings {name} cannot be resampled")
        if last in NAMES and values.ndim == 3 and isinstance(patch, int):
            changed = nn.Parameter(resampled_positions(values.detach(), size_px // patch))
            setattr(network.get_submodule(parent), last, changed)
    if hasattr(network, "image_size"):  # torchvision's ViT compares it
        network.image_size = size_px


def resampled_positions(values: Tensor, side: int) -> Tensor:
    """Resample position embeddings (1, P + T, C) to (1, P + side^2, C).

    T is a square number and P the number of prefix tokens. If the size does not change, the
    embeddings are returned unchanged.
    """
    old_side = math.isqrt(values.shape[1])
    if old_side == side:
        return values
    prefix = values.shape[1] - old_side**2
    grid = values[:, prefix:].unflatten(1, (old_side, old_side)).permute(0, 3, 1, 2).float()
    grid = interpolate(grid, size=(side, side), mode="bicubic", antialias=True)
    return torch.cat([values[:, :prefix], grid.flatten(2).transpose(1, 2).to(values.dtype)], dim=1)
