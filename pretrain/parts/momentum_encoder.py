"""A moving average of an encoder: He et al., CVPR 2020, arXiv:1911.05722, eq. 2."""

import copy
import math

import torch
from torch import Tensor, nn


class MomentumEncoder(nn.Module):
    """An encoder whose parameters are the moving average of another's.

    Buffers are not averaged: batch norm keeps the statistics of the images that this encoder sees.
    """

    def __init__(self, encoder: nn.Module, momentum: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(encoder).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def update(self, encoder: nn.Module, momentum: float | None = None) -> None:
        """Set parameters to momentum * own + (1 - momentum) * encoder's.

        The momentum is the constructor's unless one is given.
        """
        # one fused call: a loop over the parameters of a ResNet-50 takes several times as long
        rate = 1 - (self.momentum if momentum is None else momentum)
        own: list[Tensor] = list(self.network.parameters())
        target: list[Tensor] = list(encoder.parameters())
        torch._foreach_lerp_(own, target, rate)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (n, d) of images (n, 3, H, W), without gradient."""
        embeddings: Tensor = self.network(images)
        return embeddings


def rising_momentum(start: float, progress: float) -> float:
    """Return the momentum at a share of the run, rising by half a cosine to 1 as in BYOL."""
    return 1 - (1 - start) * (1 + math.cos(math.pi * progress)) / 2
