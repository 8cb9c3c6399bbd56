"""Speed of the batched SVM solver against scikit-learn's LinearSVC, on features like VOC 2007's.

    python -m benchmarks.speed.bench_svm [--n 5011 --dim 2048]

Both engines run the whole protocol in one process: cost search, last training, test. Processor
time, chosen costs and scores are compared. The ratio depends on the features: the closer the
classes are to each other, the longer LIBLINEAR takes.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor

from benchmarks.speed.command import run_benchmark
from transfer.frozen.features import Features, Predictions
from transfer.metrics import Points
from transfer.running.folders import Folders
from transfer.tasks.voc_svm import VOCSVM, SVMData

# fmt: off
VOC_FREQUENCIES = (238, 243, 330, 181, 244, 186, 713, 337, 445, 141,
                   200, 421, 287, 245, 2008, 245, 96, 229, 261, 256)
# fmt: on
VOC_IMAGES = 5011
DIFFICULT_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    n: int = 2000
    """Images of trainval and also of test; VOC 2007 has 5011 and 4952."""
    dim: int = 1024
    """Feature dimension C; 2048 for ResNet-50."""
    latent: int = 96
    """Dimensions of the latent space that images differ in; with fewer, classes overlap more."""
    classes: int = 20
    points: Points = "area"
    seed: int = 0


def synthetic_voc(settings: Settings) -> SVMData:
    """Return synthetic features after a ReLU, mostly zeros, with the class frequencies of VOC 2007.

    Each class is a direction in a latent space of decreasing variance, with a random strength per
    image. Features are (n, C). Labels (n, L) are 1, -1, or 0 for difficult.
    """
    draw = torch.Generator().manual_seed(settings.seed)
    num_images, latent = 2 * settings.n, settings.latent
    frequency = torch.tensor(VOC_FREQUENCIES).repeat(-(-settings.classes // 20)) / VOC_IMAGES
    chance = torch.rand(num_images, settings.classes, generator=draw)
    shown = chance < frequency[: settings.classes]
    spread = torch.arange(1, latent + 1).float().rsqrt()
    directions = torch.randn(settings.classes, latent, generator=draw) * spread
    strength = 0.3 + torch.rand(num_images, settings.classes, generator=draw)
    noise = torch.randn(num_images, latent, generator=draw) * spread
    content = 0.65 * (shown * strength) @ directions + noise
    mixing = torch.randn(latent, settings.dim, generator=draw) / latent**0.5
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


def timed(
    data: SVMData, solver: Literal["batched", "scikit-learn"], settings: Settings
) -> tuple[float, VOCSVM, Predictions]:
    """Run the protocol; return its processor time in s, the task and its predictions."""
    task = VOCSVM(solver=solver, points=settings.points)
    with tempfile.TemporaryDirectory() as work:
        start = time.process_time()
        predictions = task.run(data, Folders(Path(), Path(), Path(work)), settings.seed)
        return time.process_time() - start, task, predictions


def column(task: VOCSVM, predictions: Predictions, name: str) -> Tensor:
    """Return a number of each class, such as its AP, (L,)."""
    rows = cast(dict[str, dict[str, float]], task.details(predictions)["classes"])
    return torch.tensor([row[name] for row in rows.values()], dtype=torch.float64)


def run(settings: Settings) -> None:
    """Print both engines' time and mAP, the ratio, and how well they agree."""
    data = synthetic_voc(settings)
    zeros = float((data.train.features == 0).float().mean())
    shape = tuple(data.train.features.shape)
    batched_s, task, batched = timed(data, "batched", settings)
    reference_s, _, reference = timed(data, "scikit-learn", settings)
    costs = column(task, batched, "cost"), column(task, reference, "cost")
    gap = column(task, batched, "AP") - column(task, reference, "AP")
    print(
        f"features {shape[0]} x {shape[1]}, {100 * zeros:.0f} % zeros; "
        f"{len(gap)} classes, {len(task.costs)} costs, {task.num_folds} folds; "
        f"{torch.get_num_threads()} threads"
    )
    for name, seconds, found in (
        ("scikit-learn", reference_s, reference),
        ("batched", batched_s, batched),
    ):
        mean = task.metrics(found)["mAP"]
        print(f"{name:<13} {seconds:8.1f} s of processor time   mAP {mean:.3f} %")
    print(f"ratio         {reference_s / batched_s:8.1f}")
    print(f"same cost     {int((costs[0] == costs[1]).sum())} of {len(gap)} classes")
    print(f"AP of a class differs by at most {float(gap.abs().max()):.3f}")


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
