"""Speed and results of frozen features in bfloat16 with folded norms, against float32.

    python -m benchmarks.speed.bench_features --ckpt backbone.pt --data DATA --dataset cifar10
    python -m benchmarks.speed.bench_features --ckpt backbone.pt --photographs DIR

Both ways run on the same real images in one process, in turn; the order changes every round.
Processor time is compared, or wall time with a GPU. So are the predictions of nearest neighbors and
of a linear classifier that is fitted to each way's own features. Norms folded in float32 are timed
too.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.speed.clock import seconds
from benchmarks.speed.command import run_benchmark
from transfer.backbone import Backbone, Precision, load_backbone
from transfer.datasets.catalog import open_split
from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.images import Images
from transfer.frozen.crops import RandomView
from transfer.frozen.features import Features
from transfer.frozen.nearest import knn_scores
from transfer.frozen.network import device, fold_norms, forward, frozen_network
from transfer.frozen.transforms import EvalTransform, normalize_image
from transfer.metrics import top1
from transfer.running.folders import data_folder

WAYS: tuple[Precision, ...] = ("float32", "bfloat16")
RESIZED = 256 / 224
"""Short side of a photograph before its center crop, relative to the size of the crop."""
SCALE = 30.0
"""Norm of a feature vector for the linear classifier: about the square root of C, so that its
entries have a size of about 1."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    ckpt: Path
    """A trained backbone; the effect of rounding on a random one is not informative."""
    data: Path = field(default_factory=data_folder)
    dataset: str = "cifar10"
    photographs: Path | None = None
    """Folder of class folders, instead of a data set; a class may have a single image. The center
    crops are the bank, random crops of the same images are the queries."""
    views: int = 2
    """Random crops of each photograph."""
    num_bank: int = 4_000
    num_queries: int = 2_000
    num_neighbors: int = 200
    batch_size: int = 128
    rounds: int = 4
    """Number of times that each way is timed, on the first batch."""


@dataclass(frozen=True)
class Pixels:
    """Normalized images that are read on demand: at 224 px, all of them would take much memory."""

    made: Sequence[Callable[[], Tensor]]
    """Functions that each return one image (3, H, W)."""
    labels: Tensor

    def batch(self, start: int, size: int) -> Tensor:
        """Return `size` images from index `start` on, (n, 3, H, W)."""
        return torch.stack([make() for make in self.made[start : start + size]])


def of_dataset(settings: Settings, backbone: Backbone) -> tuple[Pixels, Pixels]:
    """Return evenly spaced images of trainval as bank, and of test as queries."""
    size_px = backbone.input.size_px
    transform = EvalTransform(resize_px=size_px, crop_px=size_px)

    def some(split: str, count: int) -> Pixels:
        images = open_split(settings.dataset, settings.data, split)
        places = torch.linspace(0, len(images) - 1, min(count, len(images))).long()
        made = [_centered(images, int(place), transform, backbone) for place in places]
        return Pixels(made, images.labels[places])

    return some("trainval", settings.num_bank), some("test", settings.num_queries)


def of_photographs(folder: Path, views: int, backbone: Backbone) -> tuple[Pixels, Pixels]:
    """Return the center crop of each photograph as bank, and random crops as queries."""
    images = read_class_folders(folder, folder, class_names(folder))
    size_px = backbone.input.size_px
    transform = EvalTransform(resize_px=round(RESIZED * size_px), crop_px=size_px)
    view = RandomView(px=size_px)

    def cropped(place: int, seed: int) -> Callable[[], Tensor]:
        def pixels() -> Tensor:
            crop = np.empty((size_px, size_px, 3), np.uint8)
            view.write(images.source.read(place), seed, crop)
            return normalize_image(Image.fromarray(crop), backbone.input)

        return pixels

    count = len(images)
    centers = [_centered(images, place, transform, backbone) for place in range(count)]
    crops = [cropped(seed % count, seed) for seed in range(views * count)]
    return Pixels(centers, images.labels), Pixels(crops, images.labels.repeat(views))


def _centered(
    images: Images, place: int, transform: EvalTransform, backbone: Backbone
) -> Callable[[], Tensor]:
    return lambda: transform(images[place][0], backbone.input)


def times(networks: dict[str, nn.Module], batch: Tensor, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a forward pass of images (n, 3, H, W), per network and round."""
    durations: dict[str, list[float]] = {way: [] for way in networks}
    for turn in range(-1, rounds):  # the first pass of each is not counted
        for way in list(networks)[:: -1 if turn % 2 else 1]:
            start = seconds()
            forward(networks[way], batch)
            if turn >= 0:
                durations[way].append(seconds() - start)
    return durations


def features(networks: dict[str, nn.Module], pixels: Pixels, size: int) -> dict[str, Features]:
    """Return the features (n, C) of every network; each image is read once."""
    parts: dict[str, list[Tensor]] = {way: [] for way in networks}
    for start in range(0, len(pixels.made), size):
        batch = pixels.batch(start, size)
        for way, network in networks.items():
            parts[way].append(forward(network, batch).cpu())
    return {way: Features(torch.cat(parts[way]), pixels.labels) for way in networks}


def neighbors(bank: Features, queries: Features, settings: Settings) -> Tensor:
    """Return the votes of the nearest neighbors, (n, L)."""
    return knn_scores(
        bank,
        queries.features,
        num_classes=int(bank.labels.max()) + 1,
        num_neighbors=min(settings.num_neighbors, len(bank.features)),
        temperature=0.1,
    )


def linear(bank: Features, queries: Features, settings: Settings) -> Tensor:
    """Return the scores (n, L) of logistic regression with an L2 penalty.

    Its optimum is unique, so differences come from the features alone.
    """
    classifier = LogisticRegression(max_iter=10_000)
    with warnings.catch_warnings():
        # with one image per class, scikit-learn takes the labels for a regression target
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        classifier.fit(SCALE * normalize(bank.features, dim=1).numpy(), bank.labels.numpy())
    scores = classifier.decision_function(SCALE * normalize(queries.features, dim=1).numpy())
    return torch.from_numpy(scores)


def run(settings: Settings) -> None:
    """Print the ratio of times and the share of answers that change."""
    backbone = load_backbone(settings.ckpt)
    if settings.photographs is None:
        bank, queries = of_dataset(settings, backbone)
    else:
        bank, queries = of_photographs(settings.photographs, settings.views, backbone)
    networks: dict[str, nn.Module] = {
        way: frozen_network(replace(backbone, precision=way)) for way in WAYS
    }
    exact = fold_norms(backbone.network()).to(device(), memory_format=torch.channels_last)
    timed = times(
        {**networks, "folded": exact}, bank.batch(0, settings.batch_size), settings.rounds
    )
    subject = settings.photographs or settings.dataset
    print(f"{backbone.arch} at {backbone.input.size_px} px, {subject}")
    for way, what in (("bfloat16", "bfloat16, norms folded"), ("folded", "float32, norms folded")):
        ratio = median(a / b for a, b in zip(timed["float32"], timed[way], strict=True))
        print(f"time of a batch: float32 {ratio:.2f} times that of {what}")
    banks = features(networks, bank, settings.batch_size)
    found = features(networks, queries, settings.batch_size)
    plain, rounded = (found[way].features for way in WAYS)
    cosine = torch.cosine_similarity(plain, rounded).min()
    print(f"smallest cosine of a feature with its rounded self {cosine:.6f}")
    for name, answer in (("nearest neighbors", neighbors), ("a linear classifier", linear)):
        scores = [answer(banks[way], found[way], settings) for way in WAYS]
        before, after = (way.argmax(dim=1) for way in scores)
        changed = 100 * (before != after).double().mean()
        right = " and ".join(f"{top1(way, queries.labels):.2f} %" for way in scores)
        print(
            f"{name}: {changed:.2f} % of {len(before)} answers change; "
            f"top-1 {right} in {' and '.join(WAYS)}"
        )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
