"""MoCo v2 and SimCLR from lightly's heads, losses and momentum update, for the same loop as ours.

They follow lightly's own examples. lightly is optional: pip install -e '.[compare]'.
"""

import copy

import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import heads
from lightly.models.utils import update_momentum
from torch import Tensor, nn

from pretrain.method import Method
from pretrain.parts.view import View
from pretrain.recipes.moco import MoCoConfig
from pretrain.recipes.simclr import SimCLRConfig


class LightlyMoCo(Method):
    """MoCo v2 as lightly's example builds it; keys are not shuffled between groups."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: MoCoConfig) -> None:
        super().__init__()
        self.views = (View(), View())
        self.momentum = config.momentum
        self.backbone = backbone
        head = heads.MoCoProjectionHead(feature_dim, feature_dim, config.embedding_dim)
        self.encoder = nn.Sequential(backbone, head)
        self.key_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.criterion = NTXentLoss(
            config.temperature, memory_bank_size=(config.queue_size, config.embedding_dim)
        )

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W); progress has no effect."""
        update_momentum(self.encoder, self.key_encoder, self.momentum)
        query = self.encoder(views[0])
        with torch.no_grad():
            key = self.key_encoder(views[1])
        return {"loss": self.criterion(query, key)}


class LightlySimCLR(Method):
    """SimCLR as lightly's example builds it: one pass for each view."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SimCLRConfig) -> None:
        super().__init__()
        self.views = (View(), View())
        self.backbone = backbone
        head = heads.SimCLRProjectionHead(feature_dim, config.hidden_dim, config.embedding_dim)
        self.encoder = nn.Sequential(backbone, head)
        self.criterion = NTXentLoss(config.temperature)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W); progress has no effect."""
        return {"loss": self.criterion(*(self.encoder(view) for view in views))}
