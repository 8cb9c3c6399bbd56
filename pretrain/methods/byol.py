"""BYOL: predict the momentum encoder's embedding of the other view, without negatives.

Grill et al., NeurIPS 2020, arXiv:2006.07733.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from pretrain.parts.momentum_encoder import MomentumEncoder, rising_momentum
from pretrain.parts.negative_cosine import embedding_spread, negative_cosine
from pretrain.parts.projector import plain_ended_mlp
from pretrain.parts.sync_bn import synchronized
from pretrain.parts.view import View


def byol_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Eq. 2, squared distance of rows made unit length, mean over the batch: from 0 to 4.

    prediction (n, d), target (n, d), of any length; float32, also under autocast. The target gets
    no gradient.
    """
    return 2 + 2 * negative_cosine(prediction, target)


@dataclass(frozen=True, kw_only=True)
class BYOLConfig:
    """Settings of BYOL; the defaults are the paper's for 1000 epochs of ImageNet-1k."""

    momentum: float = 0.996
    """Tau_base: of the momentum encoder at the start, per step; rises to 1 by half a cosine."""
    hidden_dim: int = 4096
    """Width of the hidden layer of projector and predictor."""
    embedding_dim: int = 256
    """d."""
    sync_bn: bool = True
    """Batch norm over the images of all processes, as in the released code."""


class BYOL(nn.Module):
    """Encoder and predictor, and the encoder's momentum copy."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: BYOLConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        widths = config.hidden_dim, config.embedding_dim
        # no biases: norms undo the hidden ones, and the released code has none in the last layers
        projector = plain_ended_mlp(feature_dim, *widths, num_hidden=1)
        self.encoder = nn.Sequential(backbone, projector)
        self.predictor = plain_ended_mlp(config.embedding_dim, *widths, num_hidden=1)
        if config.sync_bn:
            synchronized(self.encoder)
            synchronized(self.predictor)
        self.target_encoder = MomentumEncoder(self.encoder, config.momentum)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: 2 of (n, 3, H, W); progress: share of the run done.

        The loss is the sum of both directions, as in section 3.1. The momentum encoder moves
        before the step and not after it, which only shifts its schedule.
        """
        self.target_encoder.follow(self.encoder, rising_momentum(self.config.momentum, progress))
        first, second = (self.encoder(images) for images in views)
        targets = [self.target_encoder(images) for images in views]
        loss = byol_loss(self.predictor(first), targets[1])
        loss = loss + byol_loss(self.predictor(second), targets[0])
        return {"loss": loss, "embedding_spread": embedding_spread(first)}
