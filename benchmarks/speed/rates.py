"""Learning rates of few labels: images decoded for each rate, decoded once, and side by side.

The same trainings of a whole network run one rate after another with every image decoded for every
crop; the same with the images decoded once, if they fit into memory; and all rates side by side on
one stream of crops. On a CPU the weights of the three agree in every bit.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from itertools import chain
from pathlib import Path

import torch

from benchmarks.speed.harness import Comparison
from pretrain.running.processes import this_process
from transfer.backbone import random_backbone
from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.images import Images
from transfer.finetuning.classification import Classifier, train_rates
from transfer.frozen.kept_images import with_kept_pixels
from transfer.tasks.semi_supervised import LORAC_HEAD_RATES, TASKS

LORAC = TASKS["in1k_semi_1pct@lorac"]


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
    head_rates: tuple[float, ...] = LORAC_HEAD_RATES
    """Learning rates of the classifier."""
    rounds: int = 1
    """Number of times that each way is timed."""


def comparisons(settings: Settings) -> Iterator[Comparison]:
    """Yield the comparison of all rates' trainings."""
    folder, count = settings.photographs, len(settings.head_rates)
    images = read_class_folders(folder, folder, class_names(folder))
    yield Comparison(
        title=f"{settings.arch} at {settings.crop_px} px, {len(images)} images, {count} rates",
        ways={
            "decoded for every crop": lambda: train_all(settings, images, 1),
            "decoded once": lambda: train_all(settings, with_kept_pixels(images, 2.0), 1),
            "decoded once, side by side": lambda: train_all(
                settings, with_kept_pixels(images, 2.0), count
            ),
        },
        agreement=differing_tensors,
        num_images=settings.steps * settings.batch_size * count,
    )


def train_all(settings: Settings, images: Images, at_once: int) -> list[Classifier]:
    """Return a network for every rate, `at_once` of them trained side by side."""
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0)
    networks = [Classifier(backbone, len(images.class_names), seed=0) for _ in settings.head_rates]
    task = replace(
        LORAC,
        epochs=settings.steps * settings.batch_size / len(images),
        batch_size=settings.batch_size,
        crop_px=settings.crop_px,
    )
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        for first in range(0, len(networks), at_once):
            rates = settings.head_rates[first : first + at_once]
            train_rates(
                networks[first : first + at_once],
                images,
                [task.course(len(images), rate) for rate in rates],
                seed=0,
                folders=[Path(folder) / f"{rate:g}" for rate in rates],
                process=this_process(),
                names=[f"{rate:g}" for rate in rates],
            )
    return networks


def differing_tensors(networks: Mapping[str, list[Classifier]]) -> dict[str, float]:
    """Return how many tensors of the ways' networks are not equal in every bit in all ways."""
    states = [[n.state_dict().values() for n in found] for found in networks.values()]
    tensors = zip(*(chain.from_iterable(state) for state in states), strict=True)
    count = sum(not all(torch.equal(same[0], other) for other in same) for same in tensors)
    return {"tensors that differ": count}
