"""Optimizer and learning-rate schedules."""

import math
from typing import Literal

from torch import nn
from torch.optim import SGD

Schedule = Literal["cosine", "step"]


def scheduled_rate(
    schedule: Schedule, progress: float, *, learning_rate: float, milestones: tuple[float, ...] = ()
) -> float:
    """Learning rate at `progress`, the share of the run done (0 to 1).

    cosine: half a period without warm-up; step: a tenth after each milestone (shares of the run).
    """
    match schedule:
        case "cosine":
            return learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
        case "step":
            return learning_rate * 0.1 ** sum(progress >= share for share in milestones)


def sgd(network: nn.Module, *, learning_rate: float, momentum: float, weight_decay: float) -> SGD:
    """SGD over every parameter that learns, batch norm and biases included as in MoCo."""
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return SGD(
        learning, lr=learning_rate, momentum=momentum, weight_decay=weight_decay, foreach=True
    )
