"""BYOL: predict the momentum encoder's embedding of the other view, without negatives.

Grill et al., NeurIPS 2020, arXiv:2006.07733.
"""

from torch import Tensor, nn

from pretrain.method import Method
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import embedding_spread, negative_cosine
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.recipes.byol import BYOLConfig


def byol_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared distance of normalized rows (eq. 2).

    It is between 0 and 4. prediction (n, d), target (n, d), of any length. Computed in float32,
    also under autocast. The target gets no gradient.
    """
    return 2 + 2 * negative_cosine(prediction, target)


class BYOL(Method):
    """An encoder, a predictor, and a momentum encoder that provides targets."""

    batch_settings = ("sync_bn",)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: BYOLConfig) -> None:
        super().__init__()
        self.config = config
        widths = config.hidden_dim, config.embedding_dim
        # no biases: batch norm cancels hidden ones, and the released code has no final one
        projector = mlp_with_norm(feature_dim, *widths)
        predictor = mlp_with_norm(config.embedding_dim, *widths)
        self.set_encoder(backbone, projector, predictor, sync_bn=config.sync_bn)
        self.target_encoder = MomentumEncoder(self.encoder, config.momentum)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of two views (n, 3, H, W).

        It is the sum of both directions (section 3.1). progress has no effect.
        """
        first, second = (self.encoder(images) for images in views)
        targets = [self.target_encoder(images) for images in views]
        loss = byol_loss(self.predictor(first), targets[1])
        loss = loss + byol_loss(self.predictor(second), targets[0])
        return {"loss": loss, "embedding_spread": embedding_spread(first)}

    def after_step(self, progress: float | Tensor) -> None:
        """Update the target encoder with the momentum of this step.

        Section 3.2; progress is k / K.
        """
        self.target_encoder.update(self.encoder, progress)
