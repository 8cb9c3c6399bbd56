"""Frozen features, extracted once per backbone, split and transform, then read from the cache.

A hash of all that determines an entry names it, so it is never stale and may be deleted at any
time. Features are written to disk during the extraction and are memory-mapped afterwards. Several
backbones may share one pass over the images, which are then decoded once for all of them.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchvision.transforms import v2

from transfer.backbone import Backbone, InputFormat, Precision
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.datasets.unchanged import usable_split
from transfer.frozen.feature_file import (
    UnfinishedRows,
    clear_old_layout,
    read_rows,
    unfinished_rows,
)
from transfer.frozen.folded import in_bfloat16
from transfer.running import stop
from transfer.running.atomic_files import WriteError
from transfer.running.console import progress
from transfer.running.folders import Folders
from transfer.running.loader import load_stacked
from transfer.running.processes import num_gpus

CODE_VERSION = 2  # part of every cache key: raise it when the pixels or the forward change
IMAGES_PER_BATCH = 256
QUARTER_TURNS = 4
IMAGES_PER_PART = 8192  # progress is stored after each part

AskedPrecision = Precision | Literal["auto"]
"""Requested arithmetic; auto: bfloat16 on a GPU, float32 elsewhere."""


@dataclass(frozen=True, kw_only=True)
class EvalTransform:
    """Evaluation transform: resize the short side and crop the center, or squash; normalize."""

    resize_px: int
    crop_px: int
    squash: bool = False
    """Resize to resize_px x resize_px regardless of the aspect, then to crop_px x crop_px."""
    border_px: int = 0
    """Border that is cut off on all sides before anything else."""
    turns: int = 0
    """Counterclockwise quarter turns of the crop at the end."""

    @classmethod
    def center(cls, crop_px: int, margin_px: int) -> Self:
        """Return a center crop; the short side exceeds it by margin_px * crop_px / 224."""
        return cls(resize_px=round(crop_px * (1 + margin_px / 224)), crop_px=crop_px)

    def __call__(self, image: Image.Image, form: InputFormat) -> Tensor:
        """Return the normalized image (3, crop_px, crop_px), float32."""
        return normalized(self.pixels(image), form)

    def pixels(self, image: Image.Image) -> Image.Image:
        """Return the network's input image before normalization."""
        if self.border_px:
            width, height, edge = *image.size, self.border_px
            image = image.crop((edge, edge, width - edge, height - edge))
        if self.squash:
            whole = image.resize((self.resize_px, self.resize_px), Image.Resampling.BILINEAR)
            squashed = whole.resize((self.crop_px, self.crop_px), Image.Resampling.BILINEAR)
            return turned(squashed, self.turns)
        small = v2.functional.resize(image, [self.resize_px])
        center: Image.Image = v2.functional.center_crop(small, [self.crop_px, self.crop_px])
        return turned(center, self.turns)


def turned(image: Image.Image, quarters: int) -> Image.Image:
    """Turn an image counterclockwise by 0 to 3 quarters; pixels are moved, not interpolated."""
    kinds = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)
    return image.transpose(kinds[quarters - 1]) if quarters else image


def normalized(image: Image.Image, form: InputFormat) -> Tensor:
    """Return (3, H, W) float32, normalized by the backbone's mean and standard deviation."""
    return standardized(v2.functional.pil_to_tensor(image), form)


def standardized(raw: Tensor, form: InputFormat) -> Tensor:
    """Convert pixels (..., 3, H, W) uint8 to normalized float32, as the backbone expects them."""
    scaled = v2.functional.to_dtype(raw, torch.float32, scale=True)
    pixels: Tensor = v2.functional.normalize(scaled, list(form.mean), list(form.std))
    return pixels


@dataclass(frozen=True)
class Features:
    """Features and labels of one split, in the order of its images."""

    features: Tensor
    """(n, C) float32, memory-mapped from the cache."""
    labels: Tensor
    """(n,), or (n, L) for images with several labels."""


@dataclass(frozen=True)
class Predictions:
    """The predictions that a task's metrics are computed from, and details for the record."""

    scores: Tensor
    """(n, L) of the test split."""
    labels: Tensor
    """(n,) or (n, L)."""
    details: dict[str, Any] = field(default_factory=dict)


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def num_workers(images: int) -> int:
    """Return the number of loader processes; 0 if starting them costs more than they save."""
    return 0 if images < 2048 else min(len(os.sched_getaffinity(0)), 16)


def resolved(asked: AskedPrecision) -> Precision:
    """Return the arithmetic of frozen networks on this machine.

    "auto" on a CPU is float32 without folded norms. Folding would save a sixth of the time, but
    would change the last bits of all float32 features in caches, records and unfinished trainings.
    """
    if asked == "auto":
        return "bfloat16" if num_gpus() else "float32"
    return asked


def frozen_network(backbone: Backbone) -> nn.Module:
    """Return the backbone's network on the device, in channels-last layout, which is fastest."""
    network = backbone.network()
    if backbone.precision == "bfloat16":
        network = in_bfloat16(network)
    placed: nn.Module = network.to(device(), memory_format=torch.channels_last)
    return placed


@torch.no_grad()
def forward(network: nn.Module, images: Tensor) -> Tensor:
    """Return features (n, C) float32 of images (n, 3, H, W), in the arithmetic of the network."""
    weight = next(network.parameters())
    batch = images.to(
        weight.device, weight.dtype, memory_format=torch.channels_last, non_blocking=True
    )
    features: Tensor = network(batch)
    return features.float()


def open_images(key: str, split: str, folders: Folders) -> Images:
    """Return a split that is unchanged since its check, without the tolerated broken images."""
    return usable_split(folders, key, split, open_split(key, folders.data, split))


def frozen_features(
    backbone: Backbone, key: str, split: str, transform: EvalTransform, folders: Folders
) -> Features:
    """Return features of a split, cached or extracted now; DataError if the data are absent."""
    (features,) = features_together([backbone], key, split, transform, folders)
    return features


@dataclass(frozen=True)
class TrainAndTest:
    """Features of training and test images, for a classifier without random crops."""

    train: Features
    test: Features
    num_classes: int


def train_and_test(
    backbone: Backbone, key: str, transform: EvalTransform, folders: Folders
) -> TrainAndTest:
    """Return features of trainval and test, cached or extracted now."""
    train = frozen_features(backbone, key, "trainval", transform, folders)
    test = frozen_features(backbone, key, "test", transform, folders)
    return TrainAndTest(train, test, int(train.labels.max()) + 1)


def features_together(
    backbones: Sequence[Backbone],
    key: str,
    split: str,
    transform: EvalTransform,
    folders: Folders,
) -> list[Features]:
    """Return features of a split for each backbone; missing ones are extracted in one pass."""
    images = open_images(key, split, folders)
    paths = [
        folders.cache / "features" / f"{cache_key(backbone, images, transform)}.npy"
        for backbone in backbones
    ]
    entries = dict(zip(paths, backbones, strict=True))
    rows = _read_or_extract(entries, images, transform, f"{key} {split}")
    return [Features(torch.from_numpy(rows[path]), images.labels) for path in paths]


def _read_or_extract(
    entries: dict[Path, Backbone], images: Images, transform: EvalTransform, subject: str
) -> dict[Path, np.ndarray]:
    """Return the mapped rows of the entries; an entry deleted meanwhile is made once more."""
    for path in entries:
        clear_old_layout(path)
    for extractions_left in (2, 1, 0):
        rows = {p: read_rows(p, (len(images), b.feature_dim)) for p, b in entries.items()}
        absent = {path: entries[path] for path, found in rows.items() if found is None}
        if not absent:
            break
        if not extractions_left:
            raise WriteError(
                f"{next(iter(absent))}: written twice and gone each time; find out what deletes "
                "it, then start the same command again"
            )
        extract(absent, images, transform, subject)
    return {path: found for path, found in rows.items() if found is not None}


def cache_key(backbone: Backbone, images: Images, transform: EvalTransform) -> str:
    """Return a hash of weights, data, transform, device type, precision and code version."""
    parts = [
        backbone.sha256,
        images.fingerprint,
        asdict(transform),
        device().type,
        backbone.precision,
        CODE_VERSION,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


class EvalImages(Dataset[Tensor]):
    """Pixels (3, crop_px, crop_px) uint8 under the evaluation transform."""

    def __init__(self, images: Images, transform: EvalTransform) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        pixels: Tensor = v2.functional.pil_to_tensor(self.transform.pixels(self.images[index][0]))
        return pixels


class _Entry:
    """An unfinished cache entry, and the network that fills it."""

    def __init__(self, backbone: Backbone, rows: UnfinishedRows) -> None:
        self.rows, self.form = rows, backbone.input
        self.network = frozen_network(backbone)

    def put(self, start: int, raw: Tensor) -> None:
        """Write the features of pixels (n, 3, H, W) uint8 from row `start` on, unless finished."""
        if start + len(raw) > self.rows.done:
            features = forward(self.network, standardized(raw, self.form))
            self.rows.write(start, features.cpu().numpy())

    def keep(self, done: int) -> None:
        """Mark `done` rows as finished; a later call continues there."""
        if done > self.rows.done:
            self.rows.mark(done)
        self.rows.require_in_place()


def extract(
    backbones: dict[Path, Backbone], images: Images, transform: EvalTransform, subject: str
) -> None:
    """Fill the entries part by part; a later call continues after the last part.

    An entry that another process finishes while this one waits for its lock is left out.
    """
    with ExitStack() as files:
        entries = []
        for path in sorted(backbones):  # the same order in all processes, against deadlocks
            shape = (len(images), backbones[path].feature_dim)
            rows = files.enter_context(unfinished_rows(path, shape))
            if rows is not None:
                entries.append(_Entry(backbones[path], rows))
        if entries:
            several = f" for {len(entries)} backbones" if len(entries) > 1 else ""
            _fill(entries, EvalImages(images, transform), subject + several)


def _fill(entries: Sequence[_Entry], prepared: EvalImages, subject: str) -> None:
    """Extract all rows that any of the entries lacks, and finish the entries."""
    done, total = min(entry.rows.done for entry in entries), len(prepared)
    with progress("features", subject, total, done=done) as counter:
        while done < total:
            upto = min(done + IMAGES_PER_PART, total)
            part, workers = range(done, upto), num_workers(upto - done)
            for batch in load_stacked(prepared, part, IMAGES_PER_BATCH, workers):
                for entry in entries:
                    entry.put(done, batch)
                done += len(batch)
                counter.add(len(batch))
                if stop.asked():  # a whole part may take longer than the scheduler's grace period
                    break
            for entry in entries:
                entry.keep(done)
            stop.leave_if_asked()
    for entry in entries:
        entry.rows.finish()
