"""UniCLR: SimAffinity, SimWhitening and SimTrace, losses on the affinities of two views.

Li et al., arXiv:2211.14516. Affinities are cosines in SimAffinity and cosines of whitened
embeddings in SimWhitening. SimTrace uses only the diagonal of whitened inner products.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.method import Method
from pretrain.parts.gather import gather_with_gradient, num_processes
from pretrain.parts.heads import mlp_with_norm
from pretrain.parts.losses import at_least_float32
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.parts.view import View
from pretrain.parts.whitening import Pairs, whitened_cosines, whitened_trace
from pretrain.recipes.uniclr import UniCLRConfig

ONE_PAIR: Pairs = ((0, 1),)


def affinity_losses(affinity: Tensor, config: UniCLRConfig) -> Tensor:
    """Return the losses (B,) of affinities (B, P, N, N).

    A loss (equations 1 and 5) is the cross-entropy of finding an image's other view among N, plus
    the symmetric loss, averaged over P pairs of views.
    """
    logits = affinity / config.tau
    log_partition = logits.logsumexp(dim=3)
    if config.ce_both_directions:
        log_partition = (log_partition + logits.logsumexp(dim=2)) / 2
    losses = (log_partition - logits.diagonal(dim1=2, dim2=3)).mean(dim=2)
    if config.gamma:
        # equation 5: the norm, not its square. Algorithm 1 uses logits, equation 6 affinities
        matrix = logits if config.sym_on == "logits" else affinity
        losses = losses + config.gamma * torch.linalg.matrix_norm(matrix - matrix.mT)
    return losses.mean(dim=1)


def uniclr_loss(embeddings: Tensor, pairs: Pairs, config: UniCLRConfig) -> dict[str, Tensor]:
    """Return the loss and metrics, averaged over pairs of views.

    Computed in float32, also under autocast. The variants are:

    - affinity (SimAffinity, equations 1 and 6): InfoNCE of each image against the other view, plus
      the symmetric loss, in nats. Affinities are cosine similarities.
    - whitening (SimWhitening, equation 2): the same with cosine similarities of whitened
      embeddings, as in section 3.2. `ridge` times the mean variance is added to the diagonal of the
      covariance. If it has no Cholesky factor, the loss and its gradient are zero.
    - trace (SimTrace): equation 3 divided by N D, from -1 (best) to 1.
    - trace_unscaled: equation 3 as printed. There, the covariance is a sum of outer products, so
      the loss is D / 2 times as large.

    Args:
        embeddings: (V, N, D), projector outputs of V views of N images, of any length.
        pairs: the views to compare.
        config: variant and weights.
    """
    with torch.autocast(embeddings.device.type, enabled=False):
        views = at_least_float32(embeddings)[None]  # one batch (1, V, N, D)
        if config.variant == "affinity":
            unit = normalize(views, dim=3)
            affinity = torch.stack([unit[:, a] @ unit[:, b].mT for a, b in pairs], dim=1)
            loss = affinity_losses(affinity, config).mean()
            return {"loss": loss, **similarity_metrics(affinity)}
        if config.prenorm:
            views = normalize(views, dim=3)
        if not config.pooled_stats:
            views = torch.cat([torch.stack([views[:, a], views[:, b]], dim=1) for a, b in pairs])
            pairs = ONE_PAIR
        whiten = whitened_trace if config.is_trace else whitened_cosines
        result, factor = whiten(
            views,
            pairs,
            ridge=config.ridge,
            groups=config.groups,
            detach=config.detach_covariance,
        )
        if config.is_trace:
            scale = config.embedding_dim / 2 if config.variant == "trace_unscaled" else 1.0
            return {"loss": -scale * result.mean() / embeddings[0].numel(), **factor.metrics()}
        losses = factor.mask_failures(affinity_losses(result, config))
        return {"loss": losses.mean(), **similarity_metrics(result), **factor.metrics()}


class UniCLR(Method):
    """An encoder for all views.

    Optional: a momentum encoder, a predictor, and small views.
    """

    batch_settings = ("sync_bn", "local_prior")

    def __init__(self, backbone: nn.Module, feature_dim: int, config: UniCLRConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View()) + config.num_small_views * (View(small=True),)
        dim = config.embedding_dim
        projector = mlp_with_norm(
            feature_dim, config.hidden_dim, dim, num_hidden=2, final_norm="fixed"
        )
        predictor: nn.Module = nn.Identity()
        if config.predictor:
            predictor = mlp_with_norm(dim, config.predictor_dim, dim, bias=True)
        self.set_encoder(backbone, projector, predictor, sync_bn=config.sync_bn)
        self.target_encoder = (
            MomentumEncoder(self.encoder, config.momentum) if config.momentum_encoder else None
        )

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """Return loss and metrics.

        views: two large views, then S small ones, each (n, 3, H, W). progress: unused.
        """
        large, small = views[:2], views[2:]
        # each large view has separate batch statistics, as in algorithm 1; small views share them
        projected = [self.encoder(view) for view in large]
        sources = [self.predictor(rows) for rows in projected]
        if small:
            sources += self.predictor(self.encoder(torch.cat(small))).chunk(len(small))
        targets: list[Tensor] = []  # of the large views, without gradient; empty: use the sources
        if self.target_encoder is not None:
            targets = [self.target_encoder(images) for images in large]
        elif self.config.predictor:
            targets = [rows.detach() for rows in projected]
        embeddings = torch.stack([*sources, *targets], dim=1).float()
        if self.config.affinity_scope == "global":
            embeddings = gather_with_gradient(embeddings)
        pairs = compared_pairs(len(sources), separate_targets=bool(targets))
        return uniclr_loss(embeddings.transpose(0, 1), pairs, self.config)

    def cautions(self, batch_size: int) -> list[str]:
        """Return a warning if whitening leaves hardly any signal.

        2N centered rows can whiten at most 2N - 1 features. With as many features, all rows of
        every batch become orthonormal, independent of the network, unless a ridge prevents it.
        """
        config = self.config
        num_features, num_rows = config.embedding_dim // config.groups, 2 * batch_size
        num_rows //= num_processes() if config.local_prior else 1
        if config.variant == "affinity" or num_features < num_rows - 1 or config.ridge >= 0.1:
            return []
        return [
            f"whitening {num_features} features with only {num_rows} embeddings (ridge "
            f"{config.ridge:g}) removes almost all information; pass --ridge 1 or more --groups"
        ]

    def after_step(self, progress: float | Tensor) -> None:
        """Update the momentum encoder, if there is one."""
        if self.target_encoder is not None:
            self.target_encoder.update(self.encoder, progress)


def compared_pairs(num_sources: int, *, separate_targets: bool) -> Pairs:
    """Return pairs (source, target) to compare, as indices of all embeddings.

    Each large view is the target of every other view. Without separate targets, one pair of two
    large views represents both orders, since their affinities are transposes of each other.
    """
    if num_sources == 2 and not separate_targets:
        return ONE_PAIR
    first_target = num_sources if separate_targets else 0
    return [
        (source, first_target + target)
        for target in range(2)
        for source in range(num_sources)
        if source != target
    ]


def similarity_metrics(affinity: Tensor) -> dict[str, Tensor]:
    """Return the mean affinity of positive and of negative pairs.

    affinity (B, P, N, N): positives, views of one image, are on the diagonal.
    """
    affinity = affinity.detach()
    num_images = affinity.shape[-1]
    positive = affinity.diagonal(dim1=-2, dim2=-1).mean()
    negative = (affinity.mean() * num_images - positive) / (num_images - 1)
    return {"positive_similarity": positive, "negative_similarity": negative}
