"""Settings of CO2."""

from dataclasses import dataclass

from pretrain.parts.choices import Projector


@dataclass(frozen=True, kw_only=True)
class CO2Config:
    """Settings of CO2; the defaults are the paper's for ImageNet-1k on MoCo v2."""

    temperature: float = 0.2
    """Tau, divides the cosine similarities of instance discrimination; 0.07 on MoCo v1."""
    consistency_temperature: float = 0.05
    """Tau_con, divides the cosine similarities of eq. 4; 0.04 on MoCo v1."""
    consistency_weight: float = 0.3
    """Alpha of eq. 5; 10 on MoCo v1."""
    projector: Projector = "mlp"
    """Kind of the projector; "linear" on MoCo v1."""
    queue_size: int = 65_536
    """K, keys."""
    momentum: float = 0.999
    """Rate of the momentum encoder, per step."""
    embedding_dim: int = 128
    """d."""
    bn_splits: int = 1
    """Groups of images in one process, each with its own batch-norm statistics."""
