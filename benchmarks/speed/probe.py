"""Seven learning rates of a linear probe on one forward pass, against seven trainings and one.

Each way runs the full training on the same random crops of the same images.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.speed.harness import compare, tell_numbers
from transfer.datasets.catalog import open_split
from transfer.datasets.synthetic.generate import generate
from transfer.encoders.encoder import InputFormat, random_backbone
from transfer.frozen.linear_heads import train_heads
from transfer.frozen.probe_training import ProbeTraining
from transfer.tasks.linear_transfer import RATES


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    arch: str = "resnet18"
    crop_px: int = 96
    batch_size: int = 64
    steps: int = 12
    """Optimizer steps of each training."""
    rounds: int = 3
    """Number of times that each way is timed."""


def run(settings: Settings) -> None:
    """Compare the trainings on generated data."""
    form = InputFormat(size_px=settings.crop_px)
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0, input=form)
    training = ProbeTraining(
        learning_rates=RATES,
        batch_size=settings.batch_size,
        steps=settings.steps,
        crop_px=settings.crop_px,
    )
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), keys=["cars"])
        images = open_split("cars", Path(name), "train")

        def train(*rates: float) -> Tensor:
            with tempfile.TemporaryDirectory(dir=name) as work:
                heads = replace(training, learning_rates=rates)
                return train_heads(backbone, images, heads, 0, Path(work)).weight

        found = compare(
            f"{settings.arch} at {settings.crop_px} px, linear probes of {len(RATES)} rates",
            {
                "one training per rate": lambda: torch.cat([train(rate) for rate in RATES]),
                "all rates together": lambda: train(*RATES),
                "a single rate": lambda: train(RATES[0]),
            },
            settings.rounds,
            num_images=settings.steps * settings.batch_size,
        )
    alone, together, _ = found.values()
    gap = (together - alone).abs().max() / alone.abs().max()
    tell_numbers({"largest difference of weights, of the largest weight": float(gap)})
