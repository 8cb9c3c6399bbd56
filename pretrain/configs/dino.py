"""Settings of DINO."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class DINOConfig:
    """Settings of DINO; the defaults are the authors' for 800 epochs of ResNet-50."""

    temperature: float = 0.1
    """Tau_s, divides the logits of the encoder."""
    target_temperature: float = 0.07
    """Tau_t, divides the logits of the target encoder after the warm-up."""
    first_target_temperature: float = 0.04
    """Tau_t at the start of the run."""
    temperature_warmup: float = 50 / 800
    """Share of the run in which the target temperature grows linearly."""
    center_momentum: float = 0.9
    """Rate m of eq. 4, per step."""
    momentum: float = 0.996
    """Lambda, rate of the target encoder at the start, per step; rises to 1 by half a cosine."""
    last_layer_from: float = 1 / 800
    """Share of the run before which the last layer stays as it is: one epoch."""
    output_dim: int = 60_000
    """K, outputs of the last layer."""
    num_small_views: int = 6
    """Small views besides the two large ones."""
    hidden_dim: int = 2048
    """Width of the head's hidden layers."""
    embedding_dim: int = 256
    """d, inputs of the last layer."""
    head_norm: bool = True
    """Batch norm in the head, as for the authors' ResNets; their transformers have none."""
    sync_bn: ClassVar[bool] = True
    """Batch norm is over the images of all processes."""
