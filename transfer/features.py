"""Frozen features: extracted once per backbone, split and transform, then read from the cache.

A cache entry is named by a hash of all that shaped it, so it is never stale and may be deleted at
any time. Features stream to the disk while they are made and are mapped, not loaded, afterwards.
Several backbones may share one pass over the images: each is decoded once for all of them.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.lib.format import open_memmap
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchvision.transforms import v2

from transfer import stop
from transfer.backbone import Backbone, InputFormat, Precision
from transfer.console import progress
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.folded import in_bfloat16
from transfer.folders import Folders
from transfer.running.loader import load_stacked

CODE_VERSION = 2  # part of every cache key: raise it when the pixels or the forward change
IMAGES_PER_BATCH = 256
QUARTER_TURNS = 4
LOOK_AGAIN_S = 0.5  # at a lock that another process holds
IMAGES_PER_PART = 8192  # after so many an interrupted extraction goes on

AskedPrecision = Precision | Literal["auto"]
"""auto: bfloat16 on a GPU, float32 elsewhere."""


@dataclass(frozen=True, kw_only=True)
class EvalTransform:
    """Resize the short side, crop the center (or squash the whole image), normalize."""

    resize_px: int
    crop_px: int
    squash: bool = False
    """Resize to resize_px x resize_px regardless of the aspect, then to crop_px x crop_px."""
    border_px: int = 0
    """Cut off on all sides before anything else."""
    turns: int = 0
    """Quarters by which the crop is turned at the end."""

    @classmethod
    def center(cls, crop_px: int, margin_px: int) -> Self:
        """A center crop; the short side exceeds it by the margin at 224 px, in proportion else."""
        return cls(resize_px=round(crop_px * (1 + margin_px / 224)), crop_px=crop_px)

    def __call__(self, image: Image.Image, form: InputFormat) -> Tensor:
        """(3, crop_px, crop_px), float32."""
        return normalized(self.pixels(image), form)

    def pixels(self, image: Image.Image) -> Image.Image:
        """The image as the network sees it, before normalization."""
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
    """Turned counterclockwise by 0 to 3 quarters; pixels only change their place."""
    kinds = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)
    return image.transpose(kinds[quarters - 1]) if quarters else image


def normalized(image: Image.Image, form: InputFormat) -> Tensor:
    """(3, H, W) float32, by the mean and standard deviation that the backbone expects."""
    return standardized(v2.functional.pil_to_tensor(image), form)


def standardized(raw: Tensor, form: InputFormat) -> Tensor:
    """float32 of pixels (..., 3, H, W) uint8, as the backbone expects them."""
    scaled = v2.functional.to_dtype(raw, torch.float32, scale=True)
    pixels: Tensor = v2.functional.normalize(scaled, list(form.mean), list(form.std))
    return pixels


@dataclass(frozen=True)
class Features:
    """Of one split, in the order of its images."""

    features: Tensor
    """(n, C), float32, mapped from the cache."""
    labels: Tensor
    """(n,), or (n, L) where an image has many."""


@dataclass(frozen=True)
class Predictions:
    """What a task hands to its metrics, and what else is worth a line in the record."""

    scores: Tensor
    """(n, L), of the test split."""
    labels: Tensor
    """(n,) or (n, L)."""
    details: dict[str, Any] = field(default_factory=dict)


def device() -> torch.device:
    """The accelerator, if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def num_workers(images: int) -> int:
    """Loader processes: none where starting them costs more than they save."""
    return 0 if images < 2048 else min(len(os.sched_getaffinity(0)), 16)


def resolved(asked: AskedPrecision) -> Precision:
    """What frozen networks compute in on this machine.

    On a CPU float32, its norms where they are: folded they would save it a sixth of its time, but
    change the last bits of all that caches, records and unfinished trainings hold as float32.
    """
    if asked == "auto":
        return "bfloat16" if device().type == "cuda" else "float32"
    return asked


def frozen_network(backbone: Backbone) -> nn.Module:
    """The backbone on the device, in the memory layout its convolutions run fastest in."""
    network = backbone.network()
    if backbone.precision == "bfloat16":
        network = in_bfloat16(network)
    placed: nn.Module = network.to(device(), memory_format=torch.channels_last)
    return placed


@torch.no_grad()
def forward(network: nn.Module, images: Tensor) -> Tensor:
    """Features (n, C) in float32 of images (n, 3, H, W), in the arithmetic of the network."""
    weight = next(network.parameters())
    batch = images.to(
        weight.device, weight.dtype, memory_format=torch.channels_last, non_blocking=True
    )
    features: Tensor = network(batch)
    return features.float()


def open_images(key: str, split: str, folders: Folders) -> Images:
    """A split without the broken images that the user tolerates."""
    images = open_split(key, folders.data, split)
    return images.without(folders.broken) if folders.broken else images


def frozen_features(
    backbone: Backbone, key: str, split: str, transform: EvalTransform, folders: Folders
) -> Features:
    """Features of a split, from the cache or made now. DataError if the data are not there."""
    (features,) = features_together([backbone], key, split, transform, folders)
    return features


@dataclass(frozen=True)
class TrainAndTest:
    """What a classifier without training crops learns from, and what it is asked."""

    train: Features
    test: Features
    num_classes: int


def train_and_test(
    backbone: Backbone, key: str, transform: EvalTransform, folders: Folders
) -> TrainAndTest:
    """Features of all training images and of the test images, extracted now or found cached."""
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
    """The same of several backbones; what is not in the cache is made in one pass."""
    images = open_images(key, split, folders)
    paths = [
        folders.cache / "features" / f"{cache_key(backbone, images, transform)}.npy"
        for backbone in backbones
    ]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    # another process may make some of them while this one waits
    with ExitStack() as locks:
        for path in sorted({path for path in paths if not path.exists()}):
            locks.enter_context(_locked(path.with_suffix(".lock")))
        absent = {p: b for p, b in zip(paths, backbones, strict=True) if not p.exists()}
        if absent:
            several = f" for {len(absent)} backbones" if len(absent) > 1 else ""
            extract(absent, images, transform, f"{key} {split}{several}")
    return [Features(torch.from_numpy(np.load(p, mmap_mode="c")), images.labels) for p in paths]


def cache_key(backbone: Backbone, images: Images, transform: EvalTransform) -> str:
    """Hash of weights, data, transform, precision and code."""
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
    """A cache entry on its way: filled in path.partial, renamed when it is whole."""

    def __init__(self, backbone: Backbone, path: Path, num_images: int) -> None:
        self.path, self.form = path, backbone.input
        self.partial, self.count = path.with_suffix(".partial"), path.with_suffix(".count")
        begun = self.partial.exists() and self.count.exists()
        self.done = int(self.count.read_text()) if begun else 0
        shape = (num_images, backbone.feature_dim)
        self.store = (
            open_memmap(self.partial, mode="r+")
            if self.done
            else open_memmap(self.partial, mode="w+", dtype=np.float32, shape=shape)
        )
        with self.partial.open("r+b") as file:  # a full disk is an error here, not a killed process
            os.posix_fallocate(file.fileno(), 0, self.partial.stat().st_size)
        self.network = frozen_network(backbone)

    def put(self, start: int, raw: Tensor) -> None:
        """Features of pixels (n, 3, H, W) uint8, from this place on."""
        features = forward(self.network, standardized(raw, self.form))
        self.store[start : start + len(raw)] = features.cpu().numpy()

    def keep(self, done: int) -> None:
        """From here a later call goes on."""
        self.store.flush()
        self.count.write_text(str(done))

    def finish(self) -> None:
        """Into the cache."""
        del self.store
        self.partial.replace(self.path)
        self.count.unlink(missing_ok=True)


def extract(
    backbones: dict[Path, Backbone], images: Images, transform: EvalTransform, subject: str
) -> None:
    """Fill the entries part by part; a later call goes on after the last part."""
    entries = [_Entry(backbone, path, len(images)) for path, backbone in backbones.items()]
    done = min(entry.done for entry in entries)
    prepared = EvalImages(images, transform)
    with progress("features", subject, len(images), done=done) as counter:
        while done < len(images):
            upto = min(done + IMAGES_PER_PART, len(images))
            part, workers = range(done, upto), num_workers(upto - done)
            for batch in load_stacked(prepared, part, IMAGES_PER_BATCH, workers):
                for entry in entries:
                    entry.put(done, batch)
                done += len(batch)
                counter.add(len(batch))
            for entry in entries:
                entry.keep(done)
            stop.leave_if_asked()
    for entry in entries:
        entry.finish()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time; the lock goes with the process that holds it."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                stop.leave_if_asked()
                time.sleep(LOOK_AGAIN_S)
        yield
