"""Settings of SimSiam."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SimSiamConfig:
    """Settings of SimSiam; the defaults are the paper's for ImageNet-1k."""

    hidden_dim: int = 2048
    """Width of the projector's hidden layers."""
    predictor_dim: int = 512
    """Width of the predictor's hidden layer."""
    embedding_dim: int = 2048
    """d."""
    sync_bn: bool = True
    """Batch norm over the images of all processes, as in the released code."""
