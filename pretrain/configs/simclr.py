"""Settings of SimCLR."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SimCLRConfig:
    """Settings of SimCLR; the defaults are the paper's for ImageNet-1k."""

    temperature: float = 0.1
    """Tau, divides cosine similarities; 0.5 on CIFAR-10."""
    hidden_dim: int = 2048
    """Width of the projector's hidden layer."""
    embedding_dim: int = 128
    """d."""
    sync_bn: bool = True
    """Batch norm over the images of all processes: the paper's global batch norm, section 2.2."""
