"""Settings of Barlow Twins."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BarlowTwinsConfig:
    """Settings of Barlow Twins; the defaults are the paper's for ImageNet."""

    off_diagonal_weight: float = 5e-3
    """Lambda; the released code has 0.0051."""
    loss_scale: float = 0.024
    """Factor of the loss. The step of LARS does not depend on it where the weight decay is scaled
    by it too, as in the recipe; so it only sets the rate of biases and batch norm: the paper's
    0.0048, where weights have 0.2."""
    hidden_dim: int = 8192
    """Width of the projector's two hidden layers."""
    embedding_dim: int = 8192
    """D."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""
