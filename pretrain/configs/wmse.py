"""Settings of W-MSE."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WMSEConfig:
    """Settings of W-MSE; the defaults are the released code's for two views of ImageNet-100."""

    num_views: int = 2
    """V, views of an image, the paper's d; 2 in W-MSE 2, 4 in W-MSE 4."""
    whitening_size: int = 256
    """Images in a sub-batch; the paper takes twice as many as there are features."""
    num_orders: int = 1
    """I, number of random cuts of a batch into sub-batches."""
    ridge: float = 0.0
    """Share of the mean variance that is added to a covariance's diagonal; the paper has none."""
    hidden_dim: int = 1024
    """Width of the projector's hidden layers."""
    num_hidden: int = 1
    """Hidden layers: 1 in the released code, 2 in SimCLRv2's, which the paper used on ImageNet."""
    embedding_dim: int = 128
    """D."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""

    def __post_init__(self) -> None:
        if self.ridge == 0 and self.whitening_size <= self.embedding_dim:
            raise ValueError(
                f"sub-batches of {self.whitening_size} rows cannot whiten {self.embedding_dim} "
                f"features: choose whitening_size at least twice embedding_dim, or a ridge"
            )
