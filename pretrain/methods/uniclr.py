"""UniCLR: SimAffinity, SimWhitening and SimTrace, losses on the affinity matrix of two views.

Li et al., arXiv:2211.14516. Affinities are cosines, cosines of whitened embeddings, or, of
SimTrace, the whitened inner products on the diagonal alone.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.gather import gather_with_gradient
from pretrain.parts.momentum_encoder import MomentumEncoder, rising_momentum
from pretrain.parts.projector import normalized_mlp, predictor
from pretrain.parts.sync_bn import synchronized
from pretrain.parts.view import View
from pretrain.parts.whitened_trace import whitened_trace
from pretrain.parts.whitening import Factor, Pairs, Whitening, whitened_cosines

Variant = Literal["affinity", "whitening", "trace"]
SymmetryOn = Literal["logits", "affinity"]


def sim_affinity_loss(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float,
    symmetry_weight: float,
    sym_on: SymmetryOn = "logits",
    ce_both_directions: bool = False,
) -> Tensor:
    """Equations 1 and 6: InfoNCE of row i against all rows of the other view, plus symmetry.

    z1, z2 (N, D), projector outputs of any length; in nats, float32 also under autocast.
    """
    with torch.autocast(z1.device.type, enabled=False):
        affinity = cosines(stacked(z1, z2), ONE_PAIR)
        return affinity_losses(
            affinity,
            temperature=temperature,
            symmetry_weight=symmetry_weight,
            sym_on=sym_on,
            ce_both_directions=ce_both_directions,
        ).mean()


def sim_whitening_loss(
    z1: Tensor,
    z2: Tensor,
    *,
    temperature: float,
    symmetry_weight: float,
    ridge: float,
    groups: int = 1,
    detach_covariance: bool = False,
    prenorm: bool = False,
    sym_on: SymmetryOn = "logits",
    ce_both_directions: bool = False,
) -> Tensor:
    """As SimAffinity on whitened rows, equation 2 with the normalization of section 3.2.

    z1, z2 (N, D), projector outputs of any scale. The covariance of all 2N rows gets `ridge`
    times its mean variance on the diagonal, in each of the groups of features. Zero, with a
    gradient of zero, if it has no Cholesky factor.
    """
    with torch.autocast(z1.device.type, enabled=False):
        views = stacked(z1, z2, prenorm=prenorm)
        whitening = Whitening(ridge=ridge, groups=groups, detach_covariance=detach_covariance)
        affinity, factor = whitened_cosines(views, ONE_PAIR, whitening)
        losses = affinity_losses(
            affinity,
            temperature=temperature,
            symmetry_weight=symmetry_weight,
            sym_on=sym_on,
            ce_both_directions=ce_both_directions,
        )
        return factor.kept(losses).mean()


def sim_trace_loss(
    z1: Tensor,
    z2: Tensor,
    *,
    ridge: float,
    groups: int = 1,
    detach_covariance: bool = False,
    prenorm: bool = False,
) -> Tensor:
    """Equation 3 over N D, with the covariance over 2N: from -1, the best, to 1.

    z1, z2 (N, D), projector outputs of any scale; ridge, groups and failure as in SimWhitening.
    The paper's loss, with the sum of outer products as covariance, is D / 2 times as large.
    """
    with torch.autocast(z1.device.type, enabled=False):
        views = stacked(z1, z2, prenorm=prenorm)
        whitening = Whitening(ridge=ridge, groups=groups, detach_covariance=detach_covariance)
        trace, _ = whitened_trace(views, ONE_PAIR, whitening)
        return -trace.mean() / z1.numel()


ONE_PAIR: Pairs = ((0, 1),)


def stacked(*views: Tensor, prenorm: bool = False) -> Tensor:
    """V of (N, D) -> one batch (1, V, N, D), at least float32, of unit length if prenorm."""
    joined = torch.stack(views)[None]
    precise = joined.to(torch.promote_types(joined.dtype, torch.float32))
    return normalize(precise, dim=3) if prenorm else precise


def cosines(views: Tensor, pairs: Pairs) -> Tensor:
    """Of P pairs of views (B, V, N, D): (B, P, N, N)."""
    unit = normalize(views, dim=3)
    return torch.stack([unit[:, a] @ unit[:, b].mT for a, b in pairs], dim=1)


def affinity_losses(
    affinity: Tensor,
    *,
    temperature: float,
    symmetry_weight: float,
    sym_on: SymmetryOn,
    ce_both_directions: bool,
) -> Tensor:
    """Cross-entropy and symmetric loss of affinities (B, P, N, N), mean over pairs: (B,).

    The symmetric loss is the norm itself, as in equation 5, and of the logits, as in algorithm 1;
    equation 6 has it of the affinities.
    """
    logits = affinity / temperature
    partition = logits.logsumexp(dim=3)
    if ce_both_directions:
        partition = (partition + logits.logsumexp(dim=2)) / 2
    losses = (partition - logits.diagonal(dim1=2, dim2=3)).mean(dim=2)
    if symmetry_weight:
        compared = logits if sym_on == "logits" else affinity
        losses = losses + symmetry_weight * torch.linalg.matrix_norm(compared - compared.mT)
    return losses.mean(dim=1)


@dataclass(frozen=True, kw_only=True)
class UniCLRConfig:
    """Settings of UniCLR; the defaults are the paper's for ImageNet-1k, without training tricks."""

    variant: Variant = "affinity"
    """SimAffinity, SimWhitening or SimTrace."""
    temperature: float | None = None
    """Tau, divides affinities; if none the paper's: 0.5 for affinity, 1 otherwise."""
    symmetry_weight: float | None = None
    """Gamma, of the symmetric loss; if none the paper's: 0 for trace, 0.01 otherwise."""
    sym_on: SymmetryOn = "logits"
    """What the symmetric loss compares: affinities over temperature, or as they are."""
    ce_both_directions: bool = False
    """Cross-entropy over columns as well as rows; the paper has rows."""
    ridge: float = 1.0
    """Added to the covariance, times its mean variance; 1e-3 suits more images than features."""
    groups: int = 1
    """Of features, each whitened on its own."""
    detach_covariance: bool = False
    """No gradient through the covariance."""
    prenorm: bool = False
    """Unit length before whitening, as in code released later."""
    pooled_stats: bool = False
    """Mean and covariance from all embeddings of a step, not from those of each pair of views."""
    affinity_scope: Literal["global", "local"] = "global"
    """Affinities and statistics between images of all processes, or of one."""
    momentum_encoder: bool = False
    """Targets from a moving average of the encoder, without gradient."""
    momentum: float = 0.99
    """Of the momentum encoder at the start, per step; rises to 1 by half a cosine."""
    predictor: bool = False
    """An MLP on the branch that has the gradient; the other branch has none."""
    predictor_dim: int = 512
    """Width of its hidden layer."""
    num_small_views: int = 0
    """Small crops beside the two large ones; 6 with multi-crop."""
    hidden_dim: int = 2048
    """Width of the projector's hidden layers."""
    embedding_dim: int = 2048
    """D."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""

    def __post_init__(self) -> None:
        if self.variant == "trace" and (self.tau != 1 or self.gamma != 0):
            raise ValueError(
                f"variant trace has temperature {self.tau:g} and symmetry_weight {self.gamma:g}, "
                f"but it uses no affinities beside the diagonal: leave both out, or give "
                f"temperature 1 and symmetry_weight 0"
            )
        if self.embedding_dim % self.groups:
            raise ValueError(
                f"embedding_dim {self.embedding_dim} does not split into {self.groups} groups: "
                f"choose groups so that it divides embedding_dim"
            )

    @property
    def tau(self) -> float:
        """The temperature, the paper's if none is given."""
        if self.temperature is not None:
            return self.temperature
        return 0.5 if self.variant == "affinity" else 1.0

    @property
    def gamma(self) -> float:
        """The weight of the symmetric loss, the paper's if none is given."""
        if self.symmetry_weight is not None:
            return self.symmetry_weight
        return 0.0 if self.variant == "trace" else 0.01


class UniCLR(nn.Module):
    """Encoder and, as options, its momentum copy, a predictor and small crops."""

    def __init__(self, backbone: nn.Module, feature_dim: int, config: UniCLRConfig) -> None:
        super().__init__()
        self.config = config
        self.views = (View(), View()) + config.num_small_views * (View(small=True),)
        self.backbone = backbone  # what export.py writes
        projector = normalized_mlp(feature_dim, config.hidden_dim, config.embedding_dim)
        self.encoder = nn.Sequential(backbone, projector)
        self.predictor: nn.Module = nn.Identity()
        if config.predictor:
            self.predictor = predictor(config.embedding_dim, config.predictor_dim)
        if config.sync_bn:
            synchronized(self.encoder)
            synchronized(self.predictor)
        self.target_encoder = (
            MomentumEncoder(self.encoder, config.momentum) if config.momentum_encoder else None
        )

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        """views: 2 + S of (n, 3, H, W), small ones last; progress: share of the run done."""
        large, small = views[:2], views[2:]
        # Large views keep their own batch statistics, as in algorithm 1; small ones share theirs
        batches = [*large, torch.cat(small)] if small else large
        projected = [self.encoder(images) for images in batches]
        online = [self.predictor(embeddings) for embeddings in projected]
        sources = [*online[:2], *(part for rows in online[2:] for part in rows.chunk(len(small)))]
        targets = self._targets(large, projected[:2], progress)
        embeddings = torch.stack([*sources, *targets], dim=1).float()
        if self.config.affinity_scope == "global":
            embeddings = gather_with_gradient(embeddings)
        pairs = compared(len(sources), separate_targets=bool(targets))
        with torch.autocast(embeddings.device.type, enabled=False):
            return loss_and_log(embeddings.transpose(0, 1), pairs, self.config)

    def _targets(
        self, images: list[Tensor], projected: list[Tensor], progress: float
    ) -> list[Tensor]:
        """Of the large views, without gradient; none where they are the sources themselves."""
        if self.target_encoder is not None:
            momentum = rising_momentum(self.config.momentum, progress)
            self.target_encoder.follow(self.encoder, momentum)
            return [self.target_encoder(view) for view in images]
        return [rows.detach() for rows in projected] if self.config.predictor else []


def compared(num_sources: int, *, separate_targets: bool) -> Pairs:
    """Which embeddings are compared: (source, target), two large views first in each.

    One plain pair stands for both orders; otherwise each large view is the target of every other.
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


def loss_and_log(embeddings: Tensor, pairs: Pairs, config: UniCLRConfig) -> dict[str, Tensor]:
    """The loss, mean over pairs of embeddings (V, N, D), and what is logged."""
    if config.variant == "affinity":
        affinity = cosines(embeddings[None], pairs)
        return {"loss": losses_of(affinity, config).mean(), **similarities(affinity)}
    views = stacked(*embeddings, prenorm=config.prenorm)
    if not config.pooled_stats:
        views = torch.cat([torch.stack([views[:, a], views[:, b]], dim=1) for a, b in pairs])
        pairs = ONE_PAIR
    whitening = Whitening(
        ridge=config.ridge,
        groups=config.groups,
        detach_covariance=config.detach_covariance,
    )
    if config.variant == "trace":
        trace, factor = whitened_trace(views, pairs, whitening)
        return {"loss": -trace.mean() / embeddings[0].numel(), **conditioning(factor)}
    affinity, factor = whitened_cosines(views, pairs, whitening)
    losses = factor.kept(losses_of(affinity, config))
    return {"loss": losses.mean(), **similarities(affinity), **conditioning(factor)}


def losses_of(affinity: Tensor, config: UniCLRConfig) -> Tensor:
    """Losses (B,) of affinities (B, P, N, N)."""
    return affinity_losses(
        affinity,
        temperature=config.tau,
        symmetry_weight=config.gamma,
        sym_on=config.sym_on,
        ce_both_directions=config.ce_both_directions,
    )


def similarities(affinity: Tensor) -> dict[str, Tensor]:
    """Mean affinity of two views of one image, and of two images."""
    affinity = affinity.detach()
    num_images = affinity.shape[-1]
    positive = affinity.diagonal(dim1=-2, dim2=-1).mean()
    negative = (affinity.mean() * num_images - positive) / (num_images - 1)
    return {"positive_similarity": positive, "negative_similarity": negative}


def conditioning(factor: Factor) -> dict[str, Tensor]:
    """Condition number of the covariance with its ridge, and pairs of views left out without it."""
    return {
        "condition_number": factor.condition(),
        "whitening_failures": factor.num_failures(),
    }
