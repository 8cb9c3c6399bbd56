"""The batched SVM solver against scikit-learn's LinearSVC, on features like those of VOC 2007.

Both run the whole protocol: cost search, last training, test. The ratio depends on the features:
the closer the classes are to each other, the longer LIBLINEAR takes.
"""

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from benchmarks.speed.harness import compare
from pretrain.running.command_line import parse
from transfer.datasets.folders import Folders
from transfer.frozen.feature_cache import Features, Predictions
from transfer.tasks.voc_svm import VOCSVM, SVMData

# fmt: off
VOC_FREQUENCIES = (238, 243, 330, 181, 244, 186, 713, 337, 445, 141,
                   200, 421, 287, 245, 2008, 245, 96, 229, 261, 256)
# fmt: on
VOC_IMAGES = 5011
DIFFICULT_SHARE = 0.01
LATENT = 96
"""Dimensions of the latent space that images differ in; with fewer, classes overlap more."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    n: int = 2000
    """Images of trainval and also of test; VOC 2007 has 5011 and 4952."""
    dim: int = 1024
    """Feature dimension C; 2048 for ResNet-50."""
    classes: int = 20
    rounds: int = 1
    """Number of times that each way is timed."""


def run(settings: Settings) -> None:
    """Compare the protocol with both solvers."""
    data = synthetic_voc(settings)
    tasks = {
        "scikit-learn": VOCSVM(solver="scikit-learn", min_classes=1),
        "batched": VOCSVM(solver="batched", min_classes=1),
    }

    def evaluate(task: VOCSVM) -> Predictions:
        with tempfile.TemporaryDirectory() as work:
            return task.run(data, Folders(Path(), Path(), Path(work)), 0)

    found = compare(
        f"features {settings.n} x {settings.dim}, {settings.classes} classes",
        {name: partial(evaluate, task) for name, task in tasks.items()},
        settings.rounds,
    )
    usual, ours = (
        {what: column(task, found[name], what) for what in ("cost", "AP")}
        for name, task in tasks.items()
    )
    for name, task in tasks.items():
        print(f"  mAP, {name}: {task.metrics(found[name])['mAP']:.4g}")
    agreeing = 100 * float((ours["cost"] == usual["cost"]).double().mean())
    print(f"  % of costs that agree: {agreeing:.4g}")
    print(f"  largest difference of an AP: {float((ours['AP'] - usual['AP']).abs().max()):.4g}")


def synthetic_voc(settings: Settings) -> SVMData:
    """Return synthetic features after a ReLU, mostly zeros, with the class frequencies of VOC 2007.

    Each class is a direction in a latent space of decreasing variance, with a random strength per
    image. Features are (n, C). Labels (n, L) are 1, -1, or 0 for difficult.
    """
    draw = torch.Generator().manual_seed(0)
    num_images = 2 * settings.n
    frequency = torch.tensor(VOC_FREQUENCIES).repeat(-(-settings.classes // 20)) / VOC_IMAGES
    chance = torch.rand(num_images, settings.classes, generator=draw)
    shown = chance < frequency[: settings.classes]
    spread = torch.arange(1, LATENT + 1).float().rsqrt()
    directions = torch.randn(settings.classes, LATENT, generator=draw) * spread
    strength = 0.3 + torch.rand(num_images, settings.classes, generator=draw)
    noise = torch.randn(num_images, LATENT, generator=draw) * spread
    content = 0.65 * (shown * strength) @ directions + noise
    mixing = torch.randn(LATENT, settings.dim, generator=draw) / LATENT**0.5
    grain = 0.02 * torch.randn(num_images, settings.dim, generator=draw)
    gain = torch.randn(settings.dim, generator=draw).mul(0.7).exp()
    features = gain * (content @ mixing + grain - 0.02).relu()
    labels = torch.where(shown, 1, -1).to(torch.int8)
    labels[torch.rand(labels.shape, generator=draw) < DIFFICULT_SHARE] = 0
    return VOCSVM(min_classes=1).measurable(
        Features(features[: settings.n], labels[: settings.n]),
        Features(features[settings.n :], labels[settings.n :]),
        tuple(f"class {index}" for index in range(settings.classes)),
    )


def column(task: VOCSVM, predictions: Predictions, name: str) -> Tensor:
    """Return a number of each class, such as its AP, (L,)."""
    rows = cast(dict[str, dict[str, float]], task.details(predictions)["classes"])
    return torch.tensor([row[name] for row in rows.values()], dtype=torch.float64)


if __name__ == "__main__":
    run(parse(Settings, sys.argv[1:], description=__doc__))
