"""Random: the initialization itself, the floor of every comparison."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pretrain.parts.view import View


@dataclass(frozen=True, kw_only=True)
class RandomConfig:
    """Nothing to set: the seed of a run says it all."""


class Random(nn.Module):
    """A backbone that learns nothing; meant for runs of no steps, which export what they drew."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: RandomConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(),)
        self.backbone = backbone  # what export.py writes

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """A loss of zero with gradients of zero; views, 1 of (n, 3, H, W), are not looked at."""
        # of all parameters: DistributedDataParallel waits for the gradient of each
        sums = torch.stack([parameter.sum() for parameter in self.backbone.parameters()])
        return {"loss": 0 * sums.sum()}
