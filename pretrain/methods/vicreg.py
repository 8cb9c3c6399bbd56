"""VICReg: views agree, each feature varies, and no two features are correlated.

Bardes et al., ICLR 2022, arXiv:2105.04906.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import at_least_float32, off_diagonal_squares
from pretrain.recipes.vicreg import VICRegConfig

SMALLEST_VARIANCE = 1e-4
"""Epsilon of equation 2, added to variances."""


def vicreg_loss(
    z1: Tensor,
    z2: Tensor,
    *,
    invariance_weight: float,
    variance_weight: float,
    covariance_weight: float,
) -> dict[str, Tensor]:
    """Return the VICReg loss (equation 6) and its three terms.

    z1, z2 (N, D): projector outputs. The unweighted terms s, v(Z) + v(Z') and c(Z) + c(Z') are
    returned for the log. For constant outputs, the loss is nearly twice the variance weight. The
    invariance is averaged over features, as in algorithm 1 and the released code; equation 5 sums
    over them. Variances and covariances are divided by N - 1. Computed in float32, also under
    autocast.
    """
    with torch.autocast(z1.device.type, enabled=False):
        first, second = at_least_float32(z1), at_least_float32(z2)
        invariance = mse_loss(first, second)
        variance = variance_loss(first) + variance_loss(second)
        covariance = covariance_loss(first) + covariance_loss(second)
        loss = (
            invariance_weight * invariance
            + variance_weight * variance
            + covariance_weight * covariance
        )
    terms = {"invariance": invariance, "variance": variance, "covariance": covariance}
    return {"loss": loss, **{name: term.detach() for name, term in terms.items()}}


def variance_loss(embeddings: Tensor) -> Tensor:
    """Return the variance term v (equations 1 and 2): 0 to 1.

    embeddings (N, D); gamma is 1.
    """
    deviation = (embeddings.var(dim=0) + SMALLEST_VARIANCE).sqrt()
    return (1 - deviation).relu().mean()


def covariance_loss(embeddings: Tensor) -> Tensor:
    """Return the covariance term c (equations 3, 4) of embeddings (N, D)."""
    scaled = (embeddings - embeddings.mean(dim=0)) / (len(embeddings) - 1) ** 0.5
    return off_diagonal_squares(scaled, scaled) / embeddings.shape[1]


class VICReg(Method):
    """An encoder for both views; moments use the images of all processes."""

    batch_settings = ("sync_bn",)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: VICRegConfig) -> None:
        super().__init__()
        self.config = config
        widths = config.hidden_dim, config.embedding_dim
        projector = mlp_with_norm(feature_dim, *widths, num_hidden=2)
        self.set_encoder(backbone, projector, sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss and its terms.

        views: two of (n, 3, H, W). progress has no effect.
        """
        z1, z2 = (gather_with_gradient(at_least_float32(self.encoder(view))) for view in views)
        return vicreg_loss(
            z1,
            z2,
            invariance_weight=self.config.invariance_weight,
            variance_weight=self.config.variance_weight,
            covariance_weight=self.config.covariance_weight,
        )
