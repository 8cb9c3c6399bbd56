"""Settings of Zero-CL."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ZeroCLConfig:
    """Settings of Zero-CL; the defaults are the released code's for ImageNet except the widths."""

    ridge: float = 0.01
    """Addition to the variance, which is 1 on average, of every direction before whitening."""
    loss_scale: float = 0.016
    """Factor of the loss. The step of LARS does not depend on it where the weight decay is scaled
    by it too, as in the recipes; so it only sets the rate of biases and batch norm: 0.0048, where
    weights have 0.3."""
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
