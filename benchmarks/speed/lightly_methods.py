"""MoCo v2 and SimCLR of lightly's heads, losses and momentum update, for the same loop as ours.

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


class LightlyMethod(Method):
    """MoCo v2, whose keys are not shuffled between groups, or SimCLR with one pass per view."""

    def __init__(
        self, backbone: nn.Module, feature_dim: int, config: MoCoConfig | SimCLRConfig
    ) -> None:
        super().__init__()
        self.views = (View(), View())
        self.backbone, self.config = backbone, config
        dim, temperature = config.embedding_dim, config.temperature
        if isinstance(config, MoCoConfig):
            head: nn.Module = heads.MoCoProjectionHead(feature_dim, feature_dim, dim)
            self.criterion = NTXentLoss(temperature, memory_bank_size=(config.queue_size, dim))
        else:
            head = heads.SimCLRProjectionHead(feature_dim, config.hidden_dim, dim)
            self.criterion = NTXentLoss(temperature)
        self.encoder = nn.Sequential(backbone, head)
        if isinstance(config, MoCoConfig):
            self.key_encoder = copy.deepcopy(self.encoder).requires_grad_(False)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W); progress has no effect."""
        if not isinstance(self.config, MoCoConfig):
            return {"loss": self.criterion(*(self.encoder(view) for view in views))}
        update_momentum(self.encoder, self.key_encoder, self.config.momentum)
        query = self.encoder(views[0])
        with torch.no_grad():
            key = self.key_encoder(views[1])
        return {"loss": self.criterion(query, key)}
