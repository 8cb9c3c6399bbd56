"""Settings of BYOL."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BYOLConfig:
    """Settings of BYOL; the defaults are the paper's for 1000 epochs of ImageNet-1k."""

    momentum: float = 0.996
    """Tau_base, the momentum encoder's rate at the start, per step; rises to 1 by half a cosine."""
    hidden_dim: int = 4096
    """Width of the hidden layer of projector and predictor."""
    embedding_dim: int = 256
    """d."""
    sync_bn: bool = True
    """Batch norm over the images of all processes, as in the released code."""
