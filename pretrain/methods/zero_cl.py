"""Zero-CL: views agree feature by feature and image by image once both are decorrelated.

Zhang et al., ICLR 2022, openreview.net/forum?id=RAW9tCdVxLj.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, layer_norm

from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.precision import at_least_float32
from pretrain.parts.projector import plain_ended_mlp
from pretrain.parts.sync_bn import synchronized
from pretrain.parts.view import View


class Terms(NamedTuple):
    """The two losses that Zero-CL adds."""

    feature: Tensor
    """Zero-FCL, a sum over features."""
    instance: Tensor
    """Zero-ICL, a sum over images."""


def zero_cl_loss(z1: Tensor, z2: Tensor, *, ridge: float) -> Tensor:
    """Zero-FCL plus Zero-ICL of projector outputs z1, z2 (N, D) of any scale.

    N + D where views have nothing in common, least where they agree; of D and N the larger one
    cannot be whitened in full, so its term stays above zero. float32 also under autocast.
    """
    terms = terms_of(z1, z2, ridge)
    return terms.feature + terms.instance


def terms_of(z1: Tensor, z2: Tensor, ridge: float) -> Terms:
    """Of z1 and z2 (N, D): features are standardized over images, or images over features.

    By biased variances plus 1e-5; the released code adds 1e-4 to deviations over one less.
    """
    with torch.autocast(z1.device.type, enabled=False):
        rows = [at_least_float32(z) for z in (z1, z2)]
        by_feature = [batch_norm(z, None, None, training=True) for z in rows]
        by_image = [layer_norm(z, z.shape[1:]).T for z in rows]
        return Terms(*(disagreement(a, b, ridge) for a, b in (by_feature, by_image)))


def disagreement(first: Tensor, second: Tensor, ridge: float) -> Tensor:
    """Sum over k columns of (1 - c)^2, c the correlation of ZCA-whitened columns of both (m, k).

    Columns have mean 0 and variance 1. Whitening has made those of one view uncorrelated, so
    nothing is asked of pairs of different columns.
    """
    white = [zca_whitened(columns, ridge) for columns in (first, second)]
    correlation = (white[0] * white[1]).mean(dim=0)
    return (1 - correlation).square().sum()


def zca_whitened(columns: Tensor, ridge: float) -> Tensor:
    """X W of X (m, k), W = (X'X/m + r I)^-1/2 held fixed in the gradient, as in the released code.

    With more columns than rows W is r^-1/2 I - X'AX/m for an A of m x m, and is never formed.
    """
    num_rows, num_columns = columns.shape
    fixed = columns.detach()
    if num_columns <= num_rows:
        return columns @ spectral(fixed.T @ fixed / num_rows, lambda v: (v + ridge).rsqrt())

    def slope(values: Tensor) -> Tensor:
        """(f(0) - f(v)) / v of f(v) = (v + r)^-1/2, without a difference."""
        root = (values + ridge).sqrt()
        inverse: Tensor = (ridge**0.5 * root * (root + ridge**0.5)).reciprocal()
        return inverse

    inner = spectral(fixed @ fixed.T / num_rows, slope)
    white: Tensor = columns / ridge**0.5 - (columns @ fixed.T) @ (inner @ fixed) / num_rows
    return white


@torch.no_grad()
def spectral(moment: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of the eigenvalues of a symmetric matrix (k, k) >= 0; NaN if it is not finite."""
    # eigh raises on what is not finite; the training loop wants to see it in the loss
    broken = ~moment.sum().isfinite()
    values, vectors = torch.linalg.eigh(moment.masked_fill(broken, 0))
    scale = function(values.clamp_min(0)).masked_fill(broken, torch.nan)
    transformed: Tensor = (vectors * scale) @ vectors.T
    return transformed


@dataclass(frozen=True, kw_only=True)
class ZeroCLConfig:
    """Settings of Zero-CL; the defaults are the released code's for ImageNet but for the widths."""

    ridge: float = 0.01
    """Added to the variance, which is 1 on average, in every direction before whitening."""
    loss_scale: float = 0.016
    """Factor of the loss. LARS gives weights steps of their own size whatever the factor, if the
    decay has it too, as in the recipes; so it sets the rate of biases and batch norm alone: 0.0048
    beside 0.3 for weights."""
    hidden_dim: int = 2048
    """Width of the projector's two hidden layers; the released code's is 8192."""
    embedding_dim: int = 2048
    """D; the released code's is 8192."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""

    def __post_init__(self) -> None:
        if self.ridge <= 0:
            raise ValueError(
                f"ridge {self.ridge:g}: features and images cannot both be whitened without one, "
                f"since one of them outnumbers the other; choose one above 0"
            )


class ZeroCL(nn.Module):
    """One encoder for both views; whitening is over the images of all processes.

    In the released code each process whitens the features, or the images, of its own part of the
    batch, and correlations are averaged over processes, though images of one place differ there.
    """

    def __init__(self, backbone: nn.Module, feature_dim: int, config: ZeroCLConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View())
        self.backbone = backbone  # what export.py writes
        projector = plain_ended_mlp(
            feature_dim, config.hidden_dim, config.embedding_dim, num_hidden=2
        )
        self.encoder = nn.Sequential(backbone, projector)
        if config.sync_bn:
            synchronized(self.encoder)

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: 2 of (n, 3, H, W); progress is not used."""
        z1, z2 = (gather_with_gradient(at_least_float32(self.encoder(view))) for view in views)
        terms = terms_of(z1, z2, self.config.ridge)
        return {
            "loss": self.config.loss_scale * (terms.feature + terms.instance),
            "feature_disagreement": terms.feature.detach(),
            "instance_disagreement": terms.instance.detach(),
        }
