"""An encoder that follows another: He et al., CVPR 2020, arXiv:1911.05722, eq. 2."""

import copy
import math

import torch
from torch import Tensor, nn


class MomentumEncoder(nn.Module):
    """Moving average of an encoder's parameters.

    Buffers are not averaged: batch norm keeps the statistics of the keys it sees.
    """

    def __init__(self, encoder: nn.Module, momentum: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(encoder).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def follow(self, encoder: nn.Module, momentum: float | None = None) -> None:
        """momentum * own + (1 - momentum) * encoder's, in one fused call.

        Without a momentum the one of the constructor holds.
        """
        rate = 1 - (self.momentum if momentum is None else momentum)
        own: list[Tensor] = list(self.network.parameters())
        target: list[Tensor] = list(encoder.parameters())
        torch._foreach_lerp_(own, target, rate)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, H, W) -> (n, d), without gradient."""
        embeddings: Tensor = self.network(images)
        return embeddings


def rising_momentum(start: float, progress: float) -> float:
    """From start to 1 by half a cosine over the run, as in BYOL and MoCo v3."""
    return 1 - (1 - start) * (1 + math.cos(math.pi * progress)) / 2
