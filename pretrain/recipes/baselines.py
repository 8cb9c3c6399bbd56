"""Settings of the baselines: a random network, and training with labels."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RandomConfig:
    """No settings: the seed of a run decides everything."""


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig:
    """Settings of supervised training; the defaults are torchvision's for ImageNet-1k."""

    num_classes: int = 1000
    """L, classes."""
    label_smoothing: float = 0.0
    """Share of the target that is spread evenly over all classes, the true one included."""
