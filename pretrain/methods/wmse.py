"""W-MSE: views agree after whitening in sub-batches.

Ermolov et al., ICML 2021, arXiv:2007.06346.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import at_least_float32
from pretrain.parts.sync_bn import upload
from pretrain.parts.view import View
from pretrain.parts.whitening import factorize_moment
from pretrain.recipes.wmse import WMSEConfig


def wmse_loss(
    embeddings: Tensor, orders: Tensor, *, whitening_size: int, ridge: float = 0.0
) -> dict[str, Tensor]:
    """Return the mean distance of whitened views (equations 5, 6).

    It is 0 (best) to 4, since the rows have unit length. embeddings (V, N, D): projector outputs
    of any scale. Each row of orders (I, N) is a permutation that divides the images into
    sub-batches of `whitening_size`; the loss is averaged over all sub-batches. Computed in float32,
    also under autocast. If a sub-batch's covariance has no Cholesky factor, its loss and gradient
    are zero. The metrics describe the factors of all sub-batches and views.
    """
    num_views = len(embeddings)
    with torch.autocast(embeddings.device.type, enabled=False):
        indices = orders.reshape(-1, whitening_size)
        rows = at_least_float32(embeddings)[:, indices].transpose(0, 1)  # (B, V, m, D)
        # each view of a sub-batch has its own mean and covariance, as in section 3.1. Dividing by m
        # instead of m - 1 makes no difference: rows are normalized afterwards
        centered = rows - rows.mean(dim=2, keepdim=True)
        covariance = centered.mT @ centered / whitening_size
        factor = factorize_moment(covariance, rows.shape[3], ridge)
        white = torch.linalg.solve_triangular(factor.lower, centered.mT, upper=False).mT
        # |sum of V unit vectors|^2 = V + sum of cosines over ordered pairs: no loop over pairs
        resultant = normalize(white, dim=3).sum(dim=1).square().sum(dim=2)
        cosine = (resultant - num_views) / (num_views * (num_views - 1))
        loss = factor.mask_failures(2 - 2 * cosine.mean(dim=1)).mean()
        return {"loss": loss, **factor.metrics()}


class WMSE(Method):
    """An encoder for all views; sub-batches mix the images of all processes."""

    batch_settings = ("whitening_size", "sync_bn")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: WMSEConfig) -> None:
        super().__init__()
        self.config = config
        self.views = config.num_views * (View(),)
        projector = mlp_with_norm(
            feature_dim, config.hidden_dim, config.embedding_dim, num_hidden=config.num_hidden
        )
        self.set_encoder(backbone, projector, sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss of V views (n, 3, H, W).

        progress has no effect.
        """
        local = torch.stack([self.encoder(view) for view in views], dim=1)
        embeddings = gather_with_gradient(at_least_float32(local)).transpose(0, 1)
        # equal on all processes, since the loop sets equal seeds
        permutations = [torch.randperm(embeddings.shape[1]) for _ in range(self.config.num_orders)]
        orders = upload(torch.stack(permutations), local.device)
        return wmse_loss(
            embeddings,
            orders,
            whitening_size=self.config.whitening_size,
            ridge=self.config.ridge,
        )
