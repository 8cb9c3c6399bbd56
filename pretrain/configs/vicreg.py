"""Settings of VICReg."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class VICRegConfig:
    """Settings of VICReg; the defaults are the paper's for ImageNet."""

    invariance_weight: float = 25.0
    """Lambda, weight of the invariance."""
    variance_weight: float = 25.0
    """Mu, weight of the sum over both views; the released code takes their mean, as if 12.5."""
    covariance_weight: float = 1.0
    """Nu, weight of the covariance."""
    hidden_dim: int = 8192
    """Width of the projector's (the paper's expander's) two hidden layers."""
    embedding_dim: int = 8192
    """D."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""
