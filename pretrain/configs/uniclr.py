"""Settings of UniCLR."""

from dataclasses import dataclass
from typing import Literal

Variant = Literal["affinity", "whitening", "trace"]
SymmetryOn = Literal["logits", "affinity"]


@dataclass(frozen=True, kw_only=True)
class UniCLRConfig:
    """Settings of UniCLR; the defaults are the paper's for ImageNet-1k, without training tricks."""

    variant: Variant = "affinity"
    """Loss: SimAffinity, SimWhitening or SimTrace."""
    temperature: float | None = None
    """Tau, divides affinities; None: the paper's, 0.5 for affinity and 1 otherwise."""
    symmetry_weight: float | None = None
    """Gamma, weight of the symmetric loss; None: the paper's, 0 for trace and 0.01 otherwise."""
    sym_on: SymmetryOn = "logits"
    """Matrix of the symmetric loss: affinities divided by the temperature, or as they are."""
    ce_both_directions: bool = False
    """Cross-entropy over columns as well as rows; the paper has rows only."""
    ridge: float = 1.0
    """Share of the mean variance that is added to the covariance's diagonal; 1e-3 suffices where
    images outnumber features."""
    groups: int = 1
    """Groups of features, each whitened by itself."""
    detach_covariance: bool = False
    """No gradient through the covariance."""
    prenorm: bool = False
    """Rows of unit length before whitening, as in code released later."""
    pooled_stats: bool = False
    """One mean and covariance from all embeddings of a step, not one for each pair of views."""
    affinity_scope: Literal["global", "local"] = "global"
    """Images that affinities and statistics are over: those of all processes, or of each."""
    momentum_encoder: bool = False
    """Targets from a momentum encoder, without gradient."""
    momentum: float = 0.99
    """Rate of the momentum encoder at the start, per step; rises to 1 by half a cosine."""
    predictor: bool = False
    """A predictor on the branch with the gradient; the other branch gets none."""
    predictor_dim: int = 512
    """Width of the predictor's hidden layer."""
    num_small_views: int = 0
    """Small views besides the two large ones; 6 with multi-crop."""
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
                f"but it uses no affinities off the diagonal: leave both out, or give "
                f"temperature 1 and symmetry_weight 0"
            )
        if self.embedding_dim % self.groups:
            raise ValueError(
                f"embedding_dim {self.embedding_dim} does not split into {self.groups} groups: "
                f"choose groups so that it divides embedding_dim"
            )

    @property
    def tau(self) -> float:
        """Temperature, the paper's if none is given."""
        if self.temperature is not None:
            return self.temperature
        return 0.5 if self.variant == "affinity" else 1.0

    @property
    def gamma(self) -> float:
        """Weight of the symmetric loss, the paper's if none is given."""
        if self.symmetry_weight is not None:
            return self.symmetry_weight
        return 0.0 if self.variant == "trace" else 0.01
