"""Frozen features in bfloat16 with folded norms against float32: time, and what changes.

    python -m benchmarks.bench_features --ckpt backbone.pt --data DATA --dataset cifar10

Both ways pass the same images of a real set in one process, in turn; processor time is compared,
the directions of the features, and the answers of the nearest neighbors.
"""

import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import torch
import tyro
from torch import Tensor

from transfer.__main__ import data_folder
from transfer.backbone import Backbone, Precision, load_backbone
from transfer.datasets.catalog import open_split
from transfer.features import EvalTransform, Features, forward, frozen_network
from transfer.metrics import top1
from transfer.nearest import knn_scores

WAYS: tuple[Precision, ...] = ("float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of the comparison."""

    ckpt: Path
    """A trained backbone: what rounding changes in a random one says nothing."""
    data: Path = field(default_factory=data_folder)
    dataset: str = "cifar10"
    num_bank: int = 4_000
    num_queries: int = 2_000
    num_neighbors: int = 200
    batch_size: int = 128
    rounds: int = 3
    """How often each way is timed, on the first batch."""


def pixels_of(settings: Settings, backbone: Backbone, split: str, count: int) -> Features:
    """Normalized pixels (n, 3, H, W) and labels of evenly spaced images."""
    images = open_split(settings.dataset, settings.data, split)
    places = torch.linspace(0, len(images) - 1, min(count, len(images))).long()
    size_px = backbone.input.size_px
    transform = EvalTransform(resize_px=size_px, crop_px=size_px)
    pixels = torch.stack([transform(images[int(i)][0], backbone.input) for i in places])
    return Features(pixels, images.labels[places])


def main(settings: Settings) -> None:
    """Print the ratio of times and the share of answers that change."""
    backbone = load_backbone(settings.ckpt)
    bank = pixels_of(settings, backbone, "trainval", settings.num_bank)
    queries = pixels_of(settings, backbone, "test", settings.num_queries)
    networks = {way: frozen_network(replace(backbone, precision=way)) for way in WAYS}
    times: dict[Precision, list[float]] = {way: [] for way in WAYS}
    for _ in range(settings.rounds):
        for way, network in networks.items():
            start = time.process_time()
            forward(network, bank.features[: settings.batch_size])
            times[way].append(time.process_time() - start)

    def features(way: Precision, pixels: Tensor) -> Tensor:
        parts = pixels.split(settings.batch_size)
        return torch.cat([forward(networks[way], part).cpu() for part in parts])

    num_classes = int(bank.labels.max()) + 1
    found = {way: features(way, queries.features) for way in WAYS}
    votes = {
        way: knn_scores(
            Features(features(way, bank.features), bank.labels),
            found[way],
            num_classes=num_classes,
            num_neighbors=settings.num_neighbors,
            temperature=0.1,
        )
        for way in WAYS
    }
    exact, rounded = (votes[way].argmax(dim=1) for way in WAYS)
    ratio = median(a / b for a, b in zip(times["float32"], times["bfloat16"], strict=True))
    cosine = torch.cosine_similarity(found["float32"], found["bfloat16"]).min()
    changed = 100 * (exact != rounded).double().mean()
    print(f"{backbone.arch} at {backbone.input.size_px} px, {settings.dataset}")
    print(f"processor time of a batch: float32 {ratio:.2f} times that of bfloat16")
    print(f"smallest cosine of a feature with its rounded self {cosine:.6f}")
    print(f"nearest neighbors answer otherwise for {changed:.2f} % of {len(exact)} images")
    for way in WAYS:
        print(f"  top-1 in {way}: {top1(votes[way], queries.labels):.2f} %")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
