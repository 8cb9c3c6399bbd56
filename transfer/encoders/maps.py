"""Maps of an encoder: images (n, 3, S, S) -> (n, C, h, w), of patches or the last convolution.

Tokens of a class, of distillation and registers are dropped, and the network's final norm is
applied at each place, also where the network would pool before it. Position embeddings are
resampled by one method for all sources, `POSITIONS`; at its native size a network keeps its own.
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
"""How position embeddings are resampled; timm's method, a part of the protocols."""
NAMES = ("pos_embed", "position_embeddings", "pos_embedding")
MEASURED_PX = 448
"""Side of the image on which the stride is measured: strides of 14 and of 32 px divide it."""


class Maps(nn.Module):
    """An encoder's network for images of one size; BackboneError if it does not return maps."""

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
    """Return how many pixels a place of the maps spans; BackboneError if there are no such maps."""
    network = encoder.maps_network(MEASURED_PX, weights=False)
    try:
        with torch.no_grad():
            maps = network(torch.zeros(1, 3, MEASURED_PX, MEASURED_PX))
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise BackboneError(f"it takes no image of {MEASURED_PX} px: {reason}") from error
    height, width = map(int, maps.shape[2:])
    if height != width:
        raise BackboneError(f"its maps of a square image are {height} x {width}")
    if MEASURED_PX % height:  # convolutions that lose the border
        return int(2 ** round(math.log2(MEASURED_PX / height)))
    return MEASURED_PX // height


def resnet_maps(network: Any, images: Tensor) -> Tensor:
    """Return layer4's maps (n, C, H / 32, W / 32) of torchvision's ResNet."""
    x = network.maxpool(network.relu(network.bn1(network.conv1(images))))
    maps: Tensor = network.layer4(network.layer3(network.layer2(network.layer1(x))))
    return maps


def timm_maps(network: Any, images: Tensor) -> Tensor:
    """Return normalized maps of a network of timm.

    If it pools before its last norm, that norm is in `fc_norm` or in the head.
    """
    features = network.forward_features(images)
    for norm in (
        getattr(network, "fc_norm", None),
        getattr(getattr(network, "head", None), "norm", None),
    ):
        if isinstance(norm, nn.LayerNorm):  # that of maps is a subclass
            features = norm(features)
    return as_maps(features, network)


def transformers_maps(network: Any, images: Tensor, options: Mapping[str, bool]) -> Tensor:
    """Return normalized maps of a model of transformers, called with these options."""
    features = network(pixel_values=images, **options).last_hidden_state
    norm = getattr(network, "layernorm", None)
    if features.ndim == 4 and isinstance(norm, nn.LayerNorm):  # a ConvNeXt pools before it
        features = norm(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    return as_maps(features, network)


def torchvision_maps(network: Any, images: Tensor) -> Tensor:
    """Return normalized maps of a ViT, a Swin, a ConvNeXt or another network with `features`."""
    if hasattr(network, "class_token"):
        patches = network._process_input(images)
        cls = network.class_token.expand(len(images), -1, -1)
        return as_maps(network.encoder(torch.cat([cls, patches], dim=1)), network, prefix=1)
    if not hasattr(network, "features"):
        raise BackboneError(f"torchvision's {type(network).__name__} has no `features`")
    maps: Tensor = network.features(images)
    if hasattr(network, "permute"):  # Swin's maps have their channels last
        return network.permute(network.norm(maps))  # type: ignore[no-any-return]
    first = next(network.classifier.children(), None)
    return first(maps) if isinstance(first, nn.LayerNorm) else maps


def resize_input(network: Any, size_px: int) -> None:
    """Change a network in place to take images of another size, with resampled positions.

    Networks of timm do so themselves, by the method of POSITIONS. BackboneError for position
    embeddings of another form.
    """
    if callable(own := getattr(network, "set_input_size", None)):
        own(img_size=(size_px, size_px))
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
    """Return position embeddings (1, P + side^2, C) of (1, P + T, C), T a square, P prefix tokens.

    They are the same where the size does not change.
    """
    own = math.isqrt(values.shape[1])
    if own == side:
        return values
    prefix = values.shape[1] - own**2
    grid = values[:, prefix:].unflatten(1, (own, own)).permute(0, 3, 1, 2).float()
    grid = interpolate(grid, size=(side, side), mode="bicubic", antialias=True)
    return torch.cat([values[:, :prefix], grid.flatten(2).transpose(1, 2).to(values.dtype)], dim=1)
