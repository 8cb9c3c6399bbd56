"""W-MSE: views agree once small batches of them are whitened.

Ermolov et al., ICML 2021, arXiv:2007.06346.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.precision import at_least_float32
from pretrain.parts.projector import plain_ended_mlp
from pretrain.parts.sync_bn import synchronized
from pretrain.parts.view import View
from pretrain.parts.whitening import Factor, factorized_moment, second_moment


def wmse_loss(
    embeddings: Tensor, orders: Tensor, *, whitening_size: int, ridge: float = 0.0
) -> Tensor:
    """Equation 6 with the normalized distance of equation 5: 0, the best, to 4.

    embeddings (V, N, D), projector outputs of any scale. Each row of the orders (I, N), a
    permutation, cuts the images into sub-batches of `whitening_size`; the loss is the mean over
    all. float32 also under autocast; a sub-batch whose covariance has no Cholesky factor counts
    as zero, with a gradient of zero.
    """
    return loss_and_factor(embeddings, orders, whitening_size, ridge)[0]


def loss_and_factor(
    embeddings: Tensor, orders: Tensor, whitening_size: int, ridge: float
) -> tuple[Tensor, Factor]:
    """The loss, and the Cholesky factors of sub-batches and views."""
    num_views, num_images, _ = embeddings.shape
    if num_images % whitening_size:
        raise ValueError(
            f"{num_images} images do not split into sub-batches of {whitening_size}: "
            f"choose whitening_size so that it divides the batch"
        )
    with torch.autocast(embeddings.device.type, enabled=False):
        sub_batches = at_least_float32(embeddings)[:, orders.reshape(-1, whitening_size)].transpose(
            0, 1
        )
        white, factor = whitened(sub_batches, ridge)
        # the mean cosine over pairs, by the length of the sum of V unit vectors
        resultant = normalize(white, dim=3).sum(dim=1).square().sum(dim=2)
        cosine = (resultant - num_views) / (num_views * (num_views - 1))
        return factor.kept(2 - 2 * cosine.mean(dim=1)).mean(), factor


def whitened(rows: Tensor, ridge: float) -> tuple[Tensor, Factor]:
    """Rows (B, V, m, D), each view of a sub-batch with its own mean and covariance: section 3.1.

    Over m and not m - 1 as in the paper: lengths are normalized afterwards.
    """
    centered = rows - rows.mean(dim=2, keepdim=True)
    factor = factorized_moment(second_moment(centered, dual=False), rows.shape[3], ridge)
    white = torch.linalg.solve_triangular(factor.lower, centered.mT, upper=False).mT
    return white, factor


@dataclass(frozen=True, kw_only=True)
class WMSEConfig:
    """Settings of W-MSE; the defaults are the released code's for two views of ImageNet-100."""

    num_views: int = 2
    """V, positives of an image, d in the paper; 2 in W-MSE 2, 4 in W-MSE 4."""
    whitening_size: int = 256
    """Images in a sub-batch; the paper takes twice as many as there are features."""
    num_orders: int = 1
    """I, how often a batch is cut anew."""
    ridge: float = 0.0
    """Added to covariances, times their mean variance; the paper has none."""
    hidden_dim: int = 1024
    """Width of the projector's hidden layers."""
    num_hidden: int = 1
    """How many: 1 in the released code, 2 in SimCLRv2's, where the paper's ImageNet run is from."""
    embedding_dim: int = 128
    """D."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""

    def __post_init__(self) -> None:
        if self.ridge == 0 and self.whitening_size <= self.embedding_dim:
            raise ValueError(
                f"sub-batches of {self.whitening_size} rows cannot whiten {self.embedding_dim} "
                f"features: choose whitening_size at least twice embedding_dim, or a ridge"
            )


class WMSE(nn.Module):
    """One encoder for all views; sub-batches are drawn from the images of all processes."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: WMSEConfig) -> None:
        super().__init__()
        self.config = config
        self.views = config.num_views * (View(),)
        self.backbone = backbone  # what export.py writes
        projector = plain_ended_mlp(
            feature_dim, config.hidden_dim, config.embedding_dim, num_hidden=config.num_hidden
        )
        self.encoder = nn.Sequential(backbone, projector)
        if config.sync_bn:
            synchronized(self.encoder)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: V of (n, 3, H, W); progress is not used."""
        own = torch.stack([self.encoder(view) for view in views], dim=1)
        embeddings = gather_with_gradient(at_least_float32(own)).transpose(0, 1)
        # the same in every process, since the loop seeds them alike
        drawn = [torch.randperm(embeddings.shape[1]) for _ in range(self.config.num_orders)]
        orders = torch.stack(drawn).to(own.device)
        loss, factor = loss_and_factor(
            embeddings, orders, self.config.whitening_size, self.config.ridge
        )
        return {
            "loss": loss,
            "condition_number": factor.condition(),
            "whitening_failures": factor.num_failures(),
        }
