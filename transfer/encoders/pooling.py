"""A network with its pooling: (n, 3, H, W) -> (n, C)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from transfer.encoders.architectures import BackboneError
from transfer.encoders.options import Pool

MapsFunction = Callable[[nn.Module, Tensor], Tensor]
"""Function: network, images (n, 3, S, S) -> maps (n, C, h, w)."""
LAST_FOUR: tuple[Pool, ...] = ("cls-of-last-4", "cls-of-last-4+mean")


@dataclass(frozen=True, kw_only=True)
class Built:
    """A network with random weights and without classifier, and its input format."""

    network: nn.Module
    library: str
    """Library and version, or the hash of the user's file."""
    size_px: Any = 0
    mean: Any = None
    std: Any = None
    """Unverified input format of the source; 0 and None if unknown."""
    missing_input_reason: str = ""
    """Why the input format is unknown."""
    assumed: str = ""
    """Weights of the library that provide mean and std, if assumed."""
    unpooled: Callable[[nn.Module, Tensor], Tensor] | None = None
    """Tokens (n, T, C) or maps (n, C, H, W), or None."""
    own_pooling: Callable[[nn.Module, Tensor], Tensor] | None = None
    """Features (n, C) with the network's own pooling, or None."""
    last_four: Callable[[nn.Module, Tensor], Tensor] | None = None
    """Normalized class tokens of the last four blocks, and mean patch token.

    Shape (n, 5 C); None if unavailable.
    """
    maps: MapsFunction | None = None
    """Normalized maps (n, C, h, w), see maps.py, or None."""
    folder: Path | None = None
    """Folder of a transformers model, which renames tensors when it loads them."""


class Pooled(nn.Module):
    """A network with its pooling, (n, 3, H, W) -> (n, C)."""

    def __init__(self, built: Built, pool: Pool, encoder: str) -> None:
        """Combine a network with a pooling.

        Raises BackboneError if the network does not offer it.
        """
        super().__init__()
        if pool not in get_args(Pool):
            raise BackboneError(
                f"--pool {pool}: expected {', '.join(filter(None, get_args(Pool)))}"
            )
        features = built.unpooled if pool else built.own_pooling
        if pool in LAST_FOUR:
            features = built.last_four
        if features is None:
            raise BackboneError(
                f"{encoder} does not support --pool {pool}; leave it out for its own pooling"
                if pool
                else f"{encoder} does not pool: pass --pool cls, mean, ..."
            )
        self.network, self.pool, self.features = built.network, pool, features

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, C) of images (n, 3, H, W)."""
        features = self.features(self.network, images)
        if self.pool == LAST_FOUR[0]:
            return features[:, : features.shape[1] * 4 // 5]  # without the mean of the patch tokens
        if self.pool in ("", *LAST_FOUR):
            return features
        return pooled(features, self.pool, self.network)


def pooled(tokens: Tensor, pool: Pool, network: nn.Module) -> Tensor:
    """Return features (n, C), or (n, 2 C) for cls+mean.

    tokens: (n, T, C), or maps (n, C, H, W); maps are (n, H, W, C) if the network's `output_fmt` is
    "NHWC". Raises BackboneError if the class token is missing.
    """
    prefix = num_prefix_tokens(network)
    if tokens.ndim == 4:
        channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        tokens, prefix = (tokens if channels_last else tokens.permute(0, 2, 3, 1)).flatten(1, 2), 0
    if pool == "mean":
        return tokens.mean(dim=1)
    if pool == "patch-mean":
        return tokens[:, prefix:].mean(dim=1)
    if prefix == 0:
        raise BackboneError(f"--pool {pool}: the network has no class token; pass --pool mean")
    cls = tokens[:, 0]
    return cls if pool == "cls" else torch.cat([cls, tokens[:, prefix:].mean(dim=1)], dim=1)


def as_maps(features: Tensor, network: nn.Module, prefix: int | None = None) -> Tensor:
    """Return tokens or maps as maps (n, C, h, w).

    Tokens are (n, T, C). Maps may have their channels first or last. prefix: number of tokens
    before the patch tokens; None for the network's number. Raises BackboneError if the patches do
    not form a square.
    """
    if not isinstance(features, Tensor) or features.ndim not in (3, 4):
        raise BackboneError("it returns neither tokens (n, T, C) nor maps (n, C, h, w)")
    if features.ndim == 4:
        channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        return features.permute(0, 3, 1, 2) if channels_last else features
    patches = features[:, num_prefix_tokens(network) if prefix is None else prefix :]
    side = math.isqrt(patches.shape[1])
    if side**2 != patches.shape[1]:
        raise BackboneError(f"its {patches.shape[1]} patches do not form a square")
    maps: Tensor = patches.transpose(1, 2).unflatten(2, (side, side))
    return maps


def num_prefix_tokens(network: nn.Module) -> int:
    """Return the number of class and register tokens before the patch tokens."""
    number = getattr(network, "num_prefix_tokens", None)
    if number is not None:
        return int(number)
    has_cls = any(name.rpartition(".")[2] == "cls_token" for name, _ in network.named_parameters())
    registers = int(getattr(getattr(network, "config", None), "num_register_tokens", 0) or 0)
    return registers + 1 if has_cls else 0
