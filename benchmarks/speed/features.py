"""Frozen features in bfloat16 with folded norms, and in float32 with folded norms, against float32.

A forward pass of a batch is timed. Then nearest neighbors answer by the features of each way, with
evenly spaced images of trainval as bank and those of test as queries.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.speed.harness import Comparison
from transfer.backbone import load_backbone
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.frozen.extraction import EvalImages, raw_batches
from transfer.frozen.features import Features
from transfer.frozen.nearest import knn_scores
from transfer.frozen.network import device, fold_norms, forward, frozen_network
from transfer.frozen.transforms import EvalTransform, Normalization
from transfer.metrics import top1
from transfer.running.folders import data_folder


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


def comparisons(settings: Settings) -> Iterator[Comparison]:
    """Yield the comparison of a forward pass."""
    backbone = load_backbone(settings.ckpt)
    px = backbone.input.size_px
    normalize = Normalization(backbone.input, device())
    transform = EvalTransform(resize_px=px, crop_px=px)
    folded = fold_norms(backbone.network()).to(device(), memory_format=torch.channels_last)
    networks: dict[str, nn.Module] = {
        "float32": frozen_network(replace(backbone, precision="float32")),
        "bfloat16, norms folded": frozen_network(replace(backbone, precision="bfloat16")),
        "float32, norms folded": folded,
    }

    def some(split: str, count: int) -> Images:
        images = open_split(settings.dataset, settings.data, split)
        places = torch.linspace(0, len(images) - 1, min(count, len(images))).long()
        return images.subset(places.tolist())

    def features(images: Images) -> dict[str, Features]:
        """Return the features (n, C) of every network; each image is read once."""
        parts: dict[str, list[Tensor]] = {way: [] for way in networks}
        for _, raw in raw_batches(EvalImages(images, transform), 0, pinned=False):
            for way, network in networks.items():
                parts[way].append(forward(network, normalize(raw)).cpu())
        return {way: Features(torch.cat(parts[way]), images.labels) for way in networks}

    bank, queries = some("trainval", settings.num_bank), some("test", settings.num_queries)
    evaluated = EvalImages(bank, transform)
    count = min(settings.batch_size, len(bank))
    batch = normalize(torch.stack([evaluated[index] for index in range(count)]))
    yield Comparison(
        title=f"{backbone.arch} at {px} px, {count} images of {settings.dataset}",
        ways={name: partial(forward, network, batch) for name, network in networks.items()},
        agreement=lambda _: changed_answers(features(bank), features(queries)),
        num_images=count,
        wall=device().type == "cuda",
    )


def changed_answers(
    banks: Mapping[str, Features], queries: Mapping[str, Features]
) -> dict[str, float]:
    """Return how far features and nearest neighbors of each way are from those of the first."""
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
    usual, numbers = next(iter(banks)), {}
    for way in banks:
        cosines = torch.cosine_similarity(queries[usual].features, queries[way].features)
        changed = scores[way].argmax(dim=1) != scores[usual].argmax(dim=1)
        numbers[f"smallest cosine of a feature, {way}"] = float(cosines.min())
        numbers[f"% top-1 of nearest neighbors, {way}"] = top1(scores[way], queries[way].labels)
        numbers[f"% of answers that change, {way}"] = 100 * float(changed.double().mean())
    return numbers
