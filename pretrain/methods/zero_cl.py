"""Zero-CL: views agree by feature and by image, after decorrelating both.

Zhang et al., ICLR 2022, openreview.net/forum?id=RAW9tCdVxLj.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, layer_norm

from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import at_least_float32
from pretrain.recipes.zero_cl import ZeroCLConfig


def zero_cl_loss(z1: Tensor, z2: Tensor, *, ridge: float) -> dict[str, Tensor]:
    """Return Zero-FCL plus Zero-ICL of projector outputs z1, z2 (N, D).

    The outputs may have any scale. Both terms, sums over features and over images, are returned for
    the log. The loss is N + D if views are independent, and smallest if they agree. It is computed
    in float32, also under autocast. The larger of D and N cannot be whitened completely, so its
    term stays above zero. Features are standardized over images for one term, images over features
    for the other.
    """
    # biased variances plus 1e-5; the released code adds 1e-4 to unbiased standard deviations
    with torch.autocast(z1.device.type, enabled=False):
        rows = [at_least_float32(z) for z in (z1, z2)]
        by_feature = [batch_norm(z, None, None, training=True) for z in rows]
        by_image = [layer_norm(z, z.shape[1:]).T for z in rows]
        white = zca_whiten([*by_feature, *by_image], ridge)
        feature, instance = disagreement(*white[:2]), disagreement(*white[2:])
        return {
            "loss": feature + instance,
            "feature_disagreement": feature.detach(),
            "instance_disagreement": instance.detach(),
        }


def disagreement(first: Tensor, second: Tensor) -> Tensor:
    """Return the sum over columns of (1 - correlation)^2.

    first, second (m, k): ZCA-whitened columns.
    """
    # whitening already decorrelates different columns, so they need no term
    correlation = (first * second).mean(dim=0)
    return (1 - correlation).square().sum()


def zca_whiten(matrices: Sequence[Tensor], ridge: float) -> list[Tensor]:
    """Return X W for each X (m, k).

    W = (X'X/m + r I)^-1/2. No gradient flows through W, as in the released code. The smaller of m
    and k must be equal for all X.
    """
    moments = torch.stack([smaller_moment(columns.detach()) for columns in matrices])
    # eigh raises on NaN and infinity; instead, the training loop reports a bad loss
    is_bad = ~moments.sum(dim=(1, 2)).isfinite()
    # one call for all matrices, since each call waits for the device to check for errors
    values, vectors = torch.linalg.eigh(moments.masked_fill(is_bad[:, None, None], 0))
    values = values.clamp_min(0).masked_fill(is_bad[:, None], torch.nan)
    spectra = zip(values, vectors, strict=True)
    return [
        _whiten(x, *spectrum, ridge=ridge) for x, spectrum in zip(matrices, spectra, strict=True)
    ]


def smaller_moment(columns: Tensor) -> Tensor:
    """Return X'X/m or XX'/m of columns X (m, k), whichever is smaller."""
    num_rows, num_columns = columns.shape
    vectors = columns.T if num_columns <= num_rows else columns
    return vectors @ vectors.T / num_rows


def _whiten(columns: Tensor, values: Tensor, vectors: Tensor, *, ridge: float) -> Tensor:
    """Return X W for X (m, k), given its eigendecomposition.

    values (s,), vectors (s, s). They belong to the smaller moment.
    """
    num_rows, num_columns = columns.shape
    if num_columns <= num_rows:
        return columns @ ((vectors * (values + ridge).rsqrt()) @ vectors.T)
    # more columns than rows: W is r^-1/2 I - X'AX/m for an m x m matrix A; W is never formed. The
    # eigenvalues of A are (f(0) - f(v)) / v with f(v) = (v + r)^-1/2, rewritten to avoid
    # cancellation
    root = (values + ridge).sqrt()
    slope = (ridge**0.5 * root * (root + ridge**0.5)).reciprocal()
    inner, constant = (vectors * slope) @ vectors.T, columns.detach()
    white: Tensor = columns / ridge**0.5 - (columns @ constant.T) @ (inner @ constant) / num_rows
    return white


class ZeroCL(Method):
    """An encoder for both views; whitening uses the images of all processes.

    In the released code, each process whitens its part of the batch, and correlations are averaged
    over processes, although equal indices mean different images.
    """

    batch_settings = ("sync_bn",)

    def __init__(self, backbone: nn.Module, feature_dim: int, config: ZeroCLConfig) -> None:
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
        metrics = zero_cl_loss(z1, z2, ridge=self.config.ridge)
        return {**metrics, "loss": self.config.loss_scale * metrics["loss"]}
