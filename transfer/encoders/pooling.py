"""A network of any source with its pooling: images (n, 3, H, W) -> features (n, C)."""

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
"""Function of a network and images (n, 3, S, S) that returns maps (n, C, h, w)."""
LAST_FOUR: tuple[Pool, ...] = ("cls-of-last-4", "cls-of-last-4+mean")


@dataclass(frozen=True, kw_only=True)
class Built:
    """A network with random weights and without classifier, and what its source says."""

    network: nn.Module
    library: str
    """Library and version, or the hash of the user's file: a part of what determines features."""
    size_px: Any = 0
    mean: Any = None
    std: Any = None
    """Input as the source states it, not checked yet; 0 and None where it does not."""
    unstated: str = ""
    """Why the source states no input."""
    assumed: str = ""
    """Weights of the library, other than the file's, that mean and std are taken from."""
    unpooled: Callable[[nn.Module, Tensor], Tensor] | None = None
    """Tokens (n, T, C) or maps (n, C, H, W) of images; None if the source offers features alone."""
    own: Callable[[nn.Module, Tensor], Tensor] | None = None
    """Features (n, C) with the network's own pooling; None if it has none."""
    last_four: Callable[[nn.Module, Tensor], Tensor] | None = None
    """Normalized class tokens of the last four blocks and mean of the last patches (n, 5 C); None
    if the source has none."""
    maps: MapsFunction | None = None
    """Normalized maps (n, C, h, w) of images, see maps.py; None if the source has none."""
    note: str = ""
    """What a reader should know of a part that the features do not depend on."""
    folder: Path | None = None
    """Folder of a model of transformers, which stores tensors under other names than it has."""


class Pooled(nn.Module):
    """A network with its pooling, (n, 3, H, W) -> (n, C)."""

    def __init__(self, built: Built, pool: Pool, asked: str) -> None:
        """Combine a network with a pooling; BackboneError if the network does not offer it."""
        super().__init__()
        if pool not in get_args(Pool):
            raise BackboneError(
                f"--pool {pool}: expected {', '.join(filter(None, get_args(Pool)))}"
            )
        features = built.unpooled if pool else built.own
        if pool in LAST_FOUR:
            features = built.last_four
        if features is None:
            raise BackboneError(
                f"{asked} does not offer --pool {pool}; leave it out for its own pooling"
                if pool
                else f"{asked} has no pooling of its own: say --pool cls, mean, ..."
            )
        self.network, self.pool, self.features = built.network, pool, features

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, C) of images (n, 3, H, W)."""
        features = self.features(self.network, images)
        if self.pool == LAST_FOUR[0]:
            return features[:, : features.shape[1] * 4 // 5]  # without the patches, which come last
        if self.pool in ("", *LAST_FOUR):
            return features
        return pooled(features, self.pool, self.network)


def pooled(tokens: Tensor, pool: Pool, network: nn.Module) -> Tensor:
    """Return features (n, C), or (n, 2 C) for cls+mean, of tokens (n, T, C) or maps.

    Maps are (n, C, H, W), or (n, H, W, C) where the network says so. BackboneError for a class
    token that the network does not have.
    """
    prefix = num_prefix_tokens(network)
    if tokens.ndim == 4:
        last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        tokens, prefix = (tokens if last else tokens.permute(0, 2, 3, 1)).flatten(1, 2), 0
    if pool == "mean":
        return tokens.mean(dim=1)
    if pool == "patch-mean":
        return tokens[:, prefix:].mean(dim=1)
    if prefix == 0:
        raise BackboneError(f"--pool {pool}: the network has no class token; say --pool mean")
    cls = tokens[:, 0]
    return cls if pool == "cls" else torch.cat([cls, tokens[:, prefix:].mean(dim=1)], dim=1)


def as_maps(features: Tensor, network: nn.Module, prefix: int | None = None) -> Tensor:
    """Return tokens (n, T, C), or maps with channels first or last, as maps (n, C, h, w).

    prefix: number of tokens before those of the patches; as the network says if None.
    BackboneError if the patches make no square.
    """
    if not isinstance(features, Tensor) or features.ndim not in (3, 4):
        raise BackboneError("it returns neither tokens (n, T, C) nor maps (n, C, h, w)")
    if features.ndim == 4:
        last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        return features.permute(0, 3, 1, 2) if last else features
    patches = features[:, num_prefix_tokens(network) if prefix is None else prefix :]
    side = math.isqrt(patches.shape[1])
    if side**2 != patches.shape[1]:
        raise BackboneError(f"its {patches.shape[1]} patches make no square")
    maps: Tensor = patches.transpose(1, 2).unflatten(2, (side, side))
    return maps


def num_prefix_tokens(network: nn.Module) -> int:
    """Return the number of tokens before those of the patches: class token and registers."""
    stated = getattr(network, "num_prefix_tokens", None)
    if stated is not None:
        return int(stated)
    has_cls = any(name.rpartition(".")[2] == "cls_token" for name, _ in network.named_parameters())
    registers = int(getattr(getattr(network, "config", None), "num_register_tokens", 0) or 0)
    return registers + 1 if has_cls else 0
