"""Random: the initialization itself, the lower bound of every comparison."""

import torch
from torch import Tensor, nn

from pretrain.method import Method
from pretrain.parts.view import View
from pretrain.recipes.baselines import RandomConfig


class Random(Method):
    """A backbone that learns nothing, for runs of zero steps, which export their initialization."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: RandomConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(),)
        self.backbone = backbone  # what export.py writes

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return a loss of zero with gradients of zero; the view (n, 3, H, W) has no effect."""
        # all parameters take part: DistributedDataParallel waits for the gradient of each
        sums = torch.stack([parameter.sum() for parameter in self.backbone.parameters()])
        return {"loss": 0 * sums.sum()}
