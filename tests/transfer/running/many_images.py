"""So many small images that loader processes start without being asked for."""

from pathlib import Path
from unittest.mock import patch

from transfer.datasets import generate, layouts
from transfer.features import num_workers

PER_CLASS = 350


def generate_many(data: Path) -> None:
    """Write a CIFAR-10 of 2,148 training and 120 test images."""
    plan = layouts.Plan(classes=6, train=PER_CLASS, val=8, test=20)
    assert num_workers(plan.classes * plan.trainval)
    _, *rest = generate.CIFAR_SETS["cifar10"]
    with patch.dict(generate.CIFAR_SETS, {"cifar10": (plan, *rest)}):
        generate.generate(data, keys=("cifar10",))
