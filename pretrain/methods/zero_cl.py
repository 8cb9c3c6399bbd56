"""Zero-CL: views agree by feature and by image after features and images are decorrelated.

Zhang et al., ICLR 2022, openreview.net/forum?id=RAW9tCdVxLj.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, layer_norm

from pretrain.method import BatchNeeds, Method
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.loss_dtype import at_least_float32
from pretrain.parts.projector import mlp_with_plain_output
from pretrain.parts.sync_bn import synchronize_batch_norms
from pretrain.parts.view import View
from pretrain.recipes.zero_cl import ZeroCLConfig


class Terms(NamedTuple):
    """The two terms of the loss, scalars."""

    feature: Tensor
    """Zero-FCL, a sum over features."""
    instance: Tensor
    """Zero-ICL, a sum over images."""


def zero_cl_loss(z1: Tensor, z2: Tensor, *, ridge: float) -> Tensor:
    """Return Zero-FCL plus Zero-ICL of projector outputs z1, z2 (N, D) of any scale.

    It is N + D where views have nothing in common and least where they agree. The larger of D and
    N cannot be whitened completely, so its term stays above zero. float32 also under autocast.
    """
    terms = zero_cl_terms(z1, z2, ridge)
    return terms.feature + terms.instance


def zero_cl_terms(z1: Tensor, z2: Tensor, ridge: float) -> Terms:
    """Return both terms for z1 and z2 (N, D).

    Features are standardized over images for one, images over features for the other.
    """
    # biased variances plus 1e-5; the released code adds 1e-4 to unbiased standard deviations
    with torch.autocast(z1.device.type, enabled=False):
        rows = [at_least_float32(z) for z in (z1, z2)]
        by_feature = [batch_norm(z, None, None, training=True) for z in rows]
        by_image = [layer_norm(z, z.shape[1:]).T for z in rows]
        return Terms(*(disagreement(a, b, ridge) for a, b in (by_feature, by_image)))


def disagreement(first: Tensor, second: Tensor, ridge: float) -> Tensor:
    """Return the sum of (1 - c)^2, c the correlation of each of k ZCA-whitened columns (m, k).

    The columns of both arguments have mean 0 and variance 1.
    """
    # whitening has decorrelated the columns of a view: pairs of different columns need no term
    white = [zca_whiten(columns, ridge) for columns in (first, second)]
    correlation = (white[0] * white[1]).mean(dim=0)
    return (1 - correlation).square().sum()


def zca_whiten(columns: Tensor, ridge: float) -> Tensor:
    """Return X W for X (m, k) with W = (X'X/m + r I)^-1/2, without gradient through W.

    The released code detaches W as well.
    """
    num_rows, num_columns = columns.shape
    fixed = columns.detach()
    if num_columns <= num_rows:
        return columns @ spectral_function(
            fixed.T @ fixed / num_rows, lambda v: (v + ridge).rsqrt()
        )

    # more columns than rows: W is r^-1/2 I - X'AX/m for an m x m matrix A, and is never formed
    def slope(values: Tensor) -> Tensor:
        """Return (f(0) - f(v)) / v for f(v) = (v + r)^-1/2, written without a difference."""
        root = (values + ridge).sqrt()
        inverse: Tensor = (ridge**0.5 * root * (root + ridge**0.5)).reciprocal()
        return inverse

    inner = spectral_function(fixed @ fixed.T / num_rows, slope)
    white: Tensor = columns / ridge**0.5 - (columns @ fixed.T) @ (inner @ fixed) / num_rows
    return white


@torch.no_grad()
def spectral_function(moment: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to the eigenvalues of a symmetric matrix (k, k) >= 0; keep its vectors.

    A matrix that is not finite gives NaN.
    """
    # eigh raises on what is not finite; the training loop reports it from the loss instead
    broken = ~moment.sum().isfinite()
    values, vectors = torch.linalg.eigh(moment.masked_fill(broken, 0))
    scale = function(values.clamp_min(0)).masked_fill(broken, torch.nan)
    transformed: Tensor = (vectors * scale) @ vectors.T
    return transformed


class ZeroCL(Method):
    """An encoder for both views; whitening is over the images of all processes.

    In the released code each process whitens its own part of the batch and correlations are
    averaged over processes, although the images at one place are different ones.
    """

    def __init__(self, backbone: nn.Module, feature_dim: int, config: ZeroCLConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        projector = mlp_with_plain_output(
            feature_dim, config.hidden_dim, config.embedding_dim, num_hidden=2
        )
        self.encoder = nn.Sequential(backbone, projector)
        if config.sync_bn:
            synchronize_batch_norms(self.encoder)

    @staticmethod
    def batch_needs(config: ZeroCLConfig) -> BatchNeeds:
        """Return the conditions on a batch."""
        return BatchNeeds(sync_bn=config.sync_bn)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return the loss and its terms of two views (n, 3, H, W); progress has no effect."""
        z1, z2 = (gather_with_gradient(at_least_float32(self.encoder(view))) for view in views)
        terms = zero_cl_terms(z1, z2, self.config.ridge)
        return {
            "loss": self.config.loss_scale * (terms.feature + terms.instance),
            "feature_disagreement": terms.feature.detach(),
            "instance_disagreement": terms.instance.detach(),
        }
