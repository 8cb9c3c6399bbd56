"""Settings for training linear heads on random crops."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

Settings = TypeVar("Settings")
Decay = Literal["cosine", "step"]
"""Learning-rate schedule: cosine to zero, or times 0.1 at milestones."""

Labels = Literal["classes", "rotations"]
"""Type of labels.

rotations: each crop is rotated by 0, 90, 180 or 270 degrees, which is its label."""


@dataclass(frozen=True, kw_only=True)
class ProbeTraining:
    """Settings for training linear heads on random crops."""

    learning_rates: tuple[float, ...]
    """Learning rate of each head."""
    batch_size: int = 256
    epochs: float = 0
    """Epochs; pass either this or `steps`."""
    steps: int = 0
    """Optimizer steps; pass either this or `epochs`."""
    decays: tuple[Decay, ...] = ("cosine",)
    """Decay of each head, or one for all."""
    milestones: tuple[float, ...] = (0.6, 0.8)
    """Fractions of the training after which "step" decays the learning rate."""
    optimizer: Literal["sgd", "lars"] = "sgd"
    """Optimizer; lars scales each tensor's step to its norm.

    It is apex's LARC without clipping (You et al., arXiv:1708.03888)."""
    trust_coefficient: float = 0.001
    """Trust coefficient of LARS."""
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0
    labels: Labels = "classes"
    crop_px: int = 224
    weight_std: float = 0.01
    """Standard deviation of the initial weights; biases start at 0 (MoCo's probe)."""

    def num_steps(self, num_images: int) -> int:
        """Return the number of optimizer steps."""
        return self.steps or max(1, round(self.epochs * num_images / self.batch_size))

    def epoch_ends(self, num_images: int) -> list[int]:
        """Return the steps at which epochs and the training end."""
        num_steps, per_epoch = self.num_steps(num_images), num_images / self.batch_size
        ends = (max(1, round(n * per_epoch)) for n in range(1, math.ceil(num_steps / per_epoch)))
        return sorted({*(end for end in ends if end < num_steps), num_steps})

    def rate_factors(self, progress: float) -> tuple[float, ...]:
        """Return each head's learning-rate factor.

        progress: finished fraction of the training.
        """
        drops = sum(progress >= milestone for milestone in self.milestones)
        factors = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "step": 0.1**drops}
        decays = self.decays * (len(self.learning_rates) if len(self.decays) == 1 else 1)
        return tuple(factors[decay] for decay in decays)


def settings_of(kind: type[Settings], protocol: Any, **changes: Any) -> Settings:
    """Return training settings with a protocol's values of the fields of the same names.

    kind: dataclass of the settings. changes: values of other fields.
    """
    settings_class: Any = kind
    names = {spec.name for spec in fields(settings_class)} & {
        spec.name for spec in fields(protocol)
    }
    return kind(**{name: getattr(protocol, name) for name in names} | changes)
