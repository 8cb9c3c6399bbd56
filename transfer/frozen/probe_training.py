"""Settings of the training of linear heads on random crops."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

Decay = Literal["cosine", "step"]
"""Decay of the learning rate: cosine to zero per step, or times 0.1 at each milestone."""

Labels = Literal["classes", "rotations"]
"""Kind of labels; rotations: each crop is turned by 0 to 3 quarter turns, which is its label."""


@dataclass(frozen=True, kw_only=True)
class ProbeTraining:
    """Settings of the training of linear heads on random crops."""

    learning_rates: tuple[float, ...]
    """Learning rate of each head."""
    batch_size: int = 256
    epochs: float = 0
    """Passes over the images; either this or `steps`."""
    steps: int = 0
    """Optimizer steps; either this or `epochs`."""
    decays: tuple[Decay, ...] = ("cosine",)
    """Decay of each head, or one for all."""
    milestones: tuple[float, ...] = (0.6, 0.8)
    """Shares of the training after which "step" decays the rate."""
    optimizer: Literal["sgd", "lars"] = "sgd"
    """Optimizer; lars scales each tensor's step to the norm of its weights, like apex's LARC
    without clipping (You et al., arXiv:1708.03888)."""
    trust_coefficient: float = 0.001
    """Trust coefficient of LARS."""
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0
    labels: Labels = "classes"
    crop_px: int = 224
    weight_std: float = 0.01
    """Standard deviation of the initial weights; biases start at 0 (MoCo's probe)."""

    @classmethod
    def of(cls, protocol: Any, **changes: Any) -> Self:
        """Return the settings that a protocol states under the same names, with some changed."""
        stated = {spec.name for spec in fields(cls)} & {spec.name for spec in fields(protocol)}
        return cls(**{name: getattr(protocol, name) for name in stated} | changes)

    def num_steps(self, num_images: int) -> int:
        """Return the number of optimizer steps; ValueError unless epochs or steps is given."""
        if bool(self.epochs) == bool(self.steps):
            raise ValueError(f"give epochs or steps, found {self.epochs} and {self.steps}")
        return self.steps or max(1, round(self.epochs * num_images / self.batch_size))

    def pass_ends(self, num_images: int) -> list[int]:
        """Return the numbers of steps after which a pass over the images ends, and of all steps."""
        steps, per_pass = self.num_steps(num_images), num_images / self.batch_size
        ends = (max(1, round(n * per_pass)) for n in range(1, math.ceil(steps / per_pass)))
        return sorted({*(end for end in ends if end < steps), steps})

    def rate_factors(self, share: float) -> tuple[float, ...]:
        """Return the factor of each head's learning rate after this share of the training."""
        drops = sum(share >= milestone for milestone in self.milestones)
        factors = {"cosine": 0.5 * (1 + math.cos(math.pi * share)), "step": 0.1**drops}
        decays = self.decays * (len(self.learning_rates) if len(self.decays) == 1 else 1)
        return tuple(factors[decay] for decay in decays)
