"""Barlow Twins: the cross-correlation of two views' features should be the identity.

Zbontar et al., ICML 2021, arXiv:2103.03230.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from pretrain.method import BatchNeeds, Method
from pretrain.parts.cross_moment import off_diagonal_squares
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.loss_dtype import at_least_float32
from pretrain.parts.projector import mlp_with_plain_output
from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.parts.view import View
from pretrain.recipes.barlow_twins import BarlowTwinsConfig


class Terms(NamedTuple):
    """The two sums of equation 1, scalars, without lambda."""

    invariance: Tensor
    """Sum of the squared distances of the diagonal from one."""
    redundancy: Tensor
    """Sum of the squares off the diagonal."""

    def weighted_sum(self, off_diagonal_weight: float) -> Tensor:
        """Return the loss, a scalar."""
        return self.invariance + off_diagonal_weight * self.redundancy


def barlow_twins_loss(z1: Tensor, z2: Tensor, *, off_diagonal_weight: float) -> Tensor:
    """Return equation 1 of projector outputs z1, z2 (N, D) of any scale, a sum over features.

    It is zero where both views agree and no two features are correlated, and D where all features
    are uncorrelated, also with themselves in the other view. float32 also under autocast.
    """
    return correlation_terms(z1, z2).weighted_sum(off_diagonal_weight)


def correlation_terms(z1: Tensor, z2: Tensor) -> Terms:
    """Return the two sums over the cross-correlation (D, D) of z1 and z2 (N, D), equation 2.

    As in the released code, 1e-5 is added to variances: a constant feature counts as uncorrelated.
    """
    with torch.autocast(z1.device.type, enabled=False):
        scale = len(z1) ** -0.5  # a product of rows is then a mean over images
        first, second = (
            scale * batch_norm(at_least_float32(rows), None, None, training=True)
            for rows in (z1, z2)
        )
        diagonal = (first * second).sum(dim=0)
        return Terms((1 - diagonal).square().sum(), off_diagonal_squares(first, second))


class BarlowTwins(Method):
    """An encoder for both views; correlations are over the images of all processes."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: BarlowTwinsConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        projector = mlp_with_plain_output(
            feature_dim, config.hidden_dim, config.embedding_dim, num_hidden=2
        )
        self.encoder = nn.Sequential(backbone, projector)
        self.projectors = (projector,)
        if config.sync_bn:
            synchronize_batch_norms(self.encoder)

    @staticmethod
    def batch_needs(config: BarlowTwinsConfig) -> BatchNeeds:
        """Return the conditions on a batch."""
        return BatchNeeds(sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss and its terms of two views (n, 3, H, W); progress has no effect."""
        z1, z2 = (gather_with_gradient(at_least_float32(self.encoder(view))) for view in views)
        terms = correlation_terms(z1, z2)
        loss = self.config.loss_scale * terms.weighted_sum(self.config.off_diagonal_weight)
        logged = {name: term.detach() for name, term in terms._asdict().items()}
        return {"loss": loss, **logged}
