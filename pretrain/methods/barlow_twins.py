"""Barlow Twins: the cross-correlation of two views' features should be the identity.

Zbontar et al., ICML 2021, arXiv:2103.03230.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import at_least_float32, off_diagonal_squares
from pretrain.recipes.barlow_twins import BarlowTwinsConfig


def barlow_twins_loss(z1: Tensor, z2: Tensor, *, off_diagonal_weight: float) -> dict[str, Tensor]:
    """Return the Barlow Twins loss (eq. 1, 2) and its two sums.

    z1, z2 (N, D): projector outputs of any scale. The loss is a sum over the (D, D)
    cross-correlations, computed in float32, also under autocast. The sum over the diagonal, and the
    sum over the other entries without lambda, are returned for the log.

    The loss is zero if both views agree and no two features are correlated. It is D if all features
    are uncorrelated, also with themselves in the other view. As in the released code, 1e-5 is added
    to variances: a constant feature counts as uncorrelated.
    """
    with torch.autocast(z1.device.type, enabled=False):
        scale = len(z1) ** -0.5  # makes a product of columns a mean over images
        first, second = (
            scale * batch_norm(at_least_float32(rows), None, None, training=True)
            for rows in (z1, z2)
        )
        invariance = (1 - (first * second).sum(dim=0)).square().sum()
        redundancy = off_diagonal_squares(first, second)
        return {
            "loss": invariance + off_diagonal_weight * redundancy,
            "invariance": invariance.detach(),
            "redundancy": redundancy.detach(),
        }


class BarlowTwins(Method):
    """An encoder for both views; correlations use the images of all processes."""

    batch_settings = ("sync_bn",)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: BarlowTwinsConfig) -> None:
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
        metrics = barlow_twins_loss(z1, z2, off_diagonal_weight=self.config.off_diagonal_weight)
        return {**metrics, "loss": self.config.loss_scale * metrics["loss"]}
