"""Frozen features in bfloat16, with norms folded into convolutions, against float32.

A forward pass of a batch is timed. Then nearest neighbors answer by the features of each way, with
evenly spaced images of trainval as bank and those of test as queries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.speed.harness import compare, tell_numbers
from transfer.datasets.catalog import open_split
from transfer.datasets.folders import data_folder
from transfer.datasets.images import Images
from transfer.encoders.encoder import Precision
from transfer.encoders.opening import load_backbone
from transfer.frozen.extraction import EvalImages, raw_batches
from transfer.frozen.feature_cache import Features
from transfer.frozen.nearest import knn_scores
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.transforms import EvalTransform, Normalization
from transfer.metrics import top1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    ckpt: Path
    """A trained backbone; the effect of rounding on a random one is not informative."""
    data: Path = field(default_factory=data_folder)
    dataset: str = "cifar10"
    num_bank: int = 4_000
    num_queries: int = 2_000
    batch_size: int = 128
    rounds: int = 4
    """Number of times that each way is timed."""


def run(settings: Settings) -> None:
    """Compare a forward pass, then the answers."""
    backbone = load_backbone(settings.ckpt)
    px = backbone.input.size_px
    normalize = Normalization(backbone.input, device())
    transform = EvalTransform(resize_px=px, crop_px=px)
    ways: tuple[Precision, ...] = ("float32", "bfloat16")
    networks = {way: frozen_network(replace(backbone, precision=way)) for way in ways}

    def some(split: str, count: int) -> Images:
        images = open_split(settings.dataset, settings.data, split)
        places = torch.linspace(0, len(images) - 1, min(count, len(images))).long()
        return images.subset(places.tolist())

    def features(images: Images, way: Precision) -> Features:
        batches = raw_batches(EvalImages(images, transform), 0, pinned=False)
        parts = [forward(networks[way], normalize(raw)).cpu() for _, raw in batches]
        return Features(torch.cat(parts), images.labels)

    bank, queries = some("trainval", settings.num_bank), some("test", settings.num_queries)
    evaluated = EvalImages(bank, transform)
    count = min(settings.batch_size, len(bank))
    batch = normalize(torch.stack([evaluated[index] for index in range(count)]))
    ways_of_forward = {way: partial(forward, network, batch) for way, network in networks.items()}
    title = f"{backbone.arch} at {px} px, {count} images of {settings.dataset}"
    compare(title, ways_of_forward, settings.rounds, num_images=count)
    banks, answers = ({way: features(each, way) for way in ways} for each in (bank, queries))
    tell_numbers(changed_answers(banks, answers))


def changed_answers(
    banks: Mapping[Precision, Features], queries: Mapping[Precision, Features]
) -> dict[str, float]:
    """Return how far features and nearest neighbors in bfloat16 are from those in float32."""
    scores = {
        way: knn_scores(
            bank,
            queries[way].features,
            num_classes=int(bank.labels.max()) + 1,
            num_neighbors=min(200, len(bank.features)),
            temperature=0.1,
        )
        for way, bank in banks.items()
    }
    cosines = torch.cosine_similarity(queries["float32"].features, queries["bfloat16"].features)
    changed = scores["float32"].argmax(dim=1) != scores["bfloat16"].argmax(dim=1)
    return {
        "smallest cosine of a feature with its rounded self": float(cosines.min()),
        "% of nearest neighbors' answers that change": 100 * float(changed.double().mean()),
        **{f"% top-1, {way}": top1(found, queries[way].labels) for way, found in scores.items()},
    }
