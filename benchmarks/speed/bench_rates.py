"""Learning rates of few labels: images decoded for each rate, decoded once, and side by side.

    python -m benchmarks.speed.bench_rates --photographs DIR

The same trainings of a whole network run in three ways in one process: one rate after another, with
every image decoded for every crop; the same with the images decoded once; and all rates side by
side on one stream of crops. On a CPU the weights of the three agree in every bit.
"""

import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import torch

from benchmarks.speed.clock import seconds
from benchmarks.speed.command import run_benchmark
from transfer.backbone import random_backbone
from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.images import Images
from transfer.finetuning.classification import Classifier, FineTuning, train_rates
from transfer.frozen.kept_images import with_kept_pixels
from transfer.running.processes import this_process

HEAD_RATES = (0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0)
"""LORAC's rates of the classifier."""
HEAD_FACTOR = 250.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    photographs: Path
    """Folder of class folders."""
    arch: str = "resnet18"
    crop_px: int = 64
    batch_size: int = 64
    steps: int = 10
    """Steps of each rate."""


def course(settings: Settings, rate: float) -> FineTuning:
    """Return the settings of the training at a rate of the classifier."""
    return FineTuning(
        iterations=settings.steps,
        milestones=(),
        decay=0.2,
        learning_rate=rate / HEAD_FACTOR,
        batch_size=settings.batch_size,
        precision="float32",
        head_factor=HEAD_FACTOR,
        sgd_momentum=0.9,
        weight_decay=0.0,
        crop_px=settings.crop_px,
    )


def train_all(settings: Settings, images: Images, at_once: int) -> list[Classifier]:
    """Return a network for every rate, `at_once` of them trained side by side."""
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0)
    networks = [Classifier(backbone, len(images.class_names), seed=0) for _ in HEAD_RATES]
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        for first in range(0, len(HEAD_RATES), at_once):
            rates = HEAD_RATES[first : first + at_once]
            train_rates(
                networks[first : first + at_once],
                images,
                [course(settings, rate) for rate in rates],
                seed=0,
                folders=[Path(folder) / f"{rate:g}" for rate in rates],
                process=this_process(),
                names=[f"{rate:g}" for rate in rates],
            )
    return networks


def run(settings: Settings) -> None:
    """Print the time of the three ways, their ratios, and whether their weights agree."""
    folder = settings.photographs
    images = read_class_folders(folder, folder, class_names(folder))
    if with_kept_pixels(images, 2.0) is images:
        print("the decoded images do not fit into memory: no way decodes them once")
    ways: dict[str, Callable[[], list[Classifier]]] = {
        "decoded for every crop": lambda: train_all(settings, images, 1),
        "decoded once": lambda: train_all(settings, with_kept_pixels(images, 2.0), 1),
        "decoded once, side by side": lambda: train_all(
            settings, with_kept_pixels(images, 2.0), len(HEAD_RATES)
        ),
    }
    print(
        f"{settings.arch} at {settings.crop_px} px, {len(images)} images, {len(HEAD_RATES)} rates"
    )
    ways["decoded once"]()  # not counted: first use of everything
    spent: list[float] = []
    weights = []
    for name, way in ways.items():
        start = seconds()
        weights.append([network.state_dict() for network in way()])
        spent.append(seconds() - start)
        print(f"{name:<28}{spent[-1]:8.2f} s{spent[0] / spent[-1]:7.2f} times as fast", flush=True)
    same = all(
        torch.equal(one[name], other[name])
        for later in weights[1:]
        for one, other in zip(weights[0], later, strict=True)
        for name in one
    )
    print("all weights agree in every bit" if same else "weights differ")


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
