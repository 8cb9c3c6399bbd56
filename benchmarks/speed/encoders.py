"""Features of other encoders, as the suite extracts them, against the loop of timm's validate.py.

Both decode, crop, normalize and compute the same photographs: timm by its loader with its model's
crop and interpolation, the suite by its own loader, crop and frozen network. Elapsed time, since
both decode in processes of their own; each starts its processes anew.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed.harness import compare
from transfer.datasets.images import ImageFiles, Images
from transfer.encoders.encoder import Encoder
from transfer.frozen.extraction import EvalImages, raw_batches
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.transforms import EvalTransform, Normalization


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    photographs: Path
    """Folder of class folders with JPEG files."""
    models: tuple[str, ...] = ("vit_small_patch16_224.dino", "convnext_tiny.fb_in1k")
    """Names of timm."""
    num_images: int = 256
    workers: int = 4
    """Processes of timm's loader, whose default is 4; the suite takes one per processor."""
    rounds: int = 3
    """Number of times that each way is timed."""


def run(settings: Settings) -> None:
    """Compare both ways with each model, with random weights."""
    import timm

    folder = settings.photographs
    names = [str(file.relative_to(folder)).encode() for file in sorted(folder.rglob("*.JPEG"))]
    source = ImageFiles(folder, np.array(names[: settings.num_images]))
    images = Images(source, np.zeros(len(source), dtype=np.int64), ("any",))
    for name in settings.models:
        torch.manual_seed(0)
        model = timm.create_model(name.partition(".")[0], num_classes=0).eval()
        told: Any = timm.get_pretrained_cfg(name)
        encoder = Encoder.from_module(
            model, size_px=told.input_size[-1], mean=told.mean, std=told.std, name=name
        )
        ours = partial(_ours, encoder, images)
        theirs = partial(_timm, model.to(device()), folder, len(source), settings.workers)
        compare(
            f"{name} at {told.input_size[-1]} px",
            {"loop of timm's validate.py": theirs, "extraction of this suite": ours},
            settings.rounds,
            num_images=len(source),
            wall=True,
        )


@torch.inference_mode()
def _timm(model: Any, folder: Path, count: int, workers: int) -> Tensor:
    """Return features (n, C) by timm's loader and the model on the device, in batches of 256."""
    from timm.data.config import resolve_data_config
    from timm.data.dataset import ImageDataset
    from timm.data.loader import create_loader

    told = resolve_data_config(model=model)
    loader = create_loader(
        ImageDataset(str(folder)),
        told["input_size"],
        256,
        interpolation=told["interpolation"],
        mean=told["mean"],
        std=told["std"],
        crop_pct=told["crop_pct"],
        num_workers=workers,
        use_prefetcher=device().type == "cuda",
    )
    loader.dataset.reader.samples = loader.dataset.reader.samples[:count]
    return torch.cat([model(images.to(device())).cpu() for images, _ in loader])


@torch.inference_mode()
def _ours(encoder: Encoder, images: Images) -> Tensor:
    """Return features (n, C) by the production path: raw batches, normalization, forward."""
    px, network = encoder.input.size_px, frozen_network(encoder)
    normalize = Normalization(encoder.input, device())
    prepared = EvalImages(images, EvalTransform.center(px, 32))
    batches = raw_batches(prepared, 0, pinned=device().type == "cuda")
    return torch.cat([forward(network, normalize(raw)).cpu() for _, raw in batches])
