"""Settings of JCL."""

from dataclasses import dataclass

from pretrain.parts.choices import KeyForward
from pretrain.parts.ramp import Ramp


@dataclass(frozen=True, kw_only=True)
class JCLConfig:
    """Settings of JCL; the defaults are the paper's for ImageNet-1k."""

    temperature: float = 0.2
    """Tau, divides cosine similarities."""
    covariance_weight: float = 4.0
    """Lambda of eq. 8."""
    covariance_ramp: Ramp = "constant"
    """Course of lambda over the run: constant in the paper, a linear ramp in the released code."""
    num_keys: int = 5
    """M', positive keys per image; the query is not counted."""
    unit_mean: bool = False
    """Normalize mean keys before they are queued; the paper is silent, its code does not."""
    queue_size: int = 65_536
    """K, keys."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    key_forward: KeyForward = "concatenated"
    """Images that batch norm of the keys sees: all M' views of a batch together (appendix C), or
    one view at a time."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""
