"""SimSiam: predict the embedding of the other view; the stopped gradient prevents a collapse.

Chen & He, CVPR 2021, arXiv:2011.10566.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from pretrain.parts.negative_cosine import embedding_spread, negative_cosine
from pretrain.parts.projector import normalized_mlp, predictor
from pretrain.parts.sync_bn import synchronized
from pretrain.parts.view import View


def simsiam_loss(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """Eq. 4, mean over the batch, from -1, the best, to 1; float32, also under autocast.

    Predictions p1, p2 (n, d) and embeddings z1, z2 (n, d) of two views, of any length; the
    embeddings get no gradient as targets.
    """
    return negative_cosine(p1, z2) / 2 + negative_cosine(p2, z1) / 2


@dataclass(frozen=True, kw_only=True)
class SimSiamConfig:
    """Settings of SimSiam; the defaults are the paper's for ImageNet-1k."""

    hidden_dim: int = 2048
    """Width of the projector's hidden layers."""
    predictor_dim: int = 512
    """Width of the predictor's hidden layer."""
    embedding_dim: int = 2048
    """d."""
    sync_bn: bool = True
    """Batch norm over the images of all processes, as in the released code."""


class SimSiam(nn.Module):
    """An encoder for both views, and a predictor."""

    fixed_rate = ("predictor",)
    """What learns at a constant rate, section 4.2."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: SimSiamConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        projector = normalized_mlp(feature_dim, config.hidden_dim, config.embedding_dim)
        self.encoder = nn.Sequential(backbone, projector)
        self.predictor = predictor(config.embedding_dim, config.predictor_dim)
        if config.sync_bn:
            synchronized(self.encoder)
            synchronized(self.predictor)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: 2 of (n, 3, H, W), each with its own batch statistics; progress has no effect."""
        z1, z2 = (self.encoder(images) for images in views)
        loss = simsiam_loss(self.predictor(z1), self.predictor(z2), z1, z2)
        return {"loss": loss, "embedding_spread": embedding_spread(z1)}
