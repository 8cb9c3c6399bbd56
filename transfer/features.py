"""Frozen features: extracted once per backbone, split and transform, then read from the cache.

A cache entry is named by a hash of all that shaped it, so it is never stale and may be deleted at
any time. Features stream to the disk while they are made and are mapped, not loaded, afterwards.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2

from transfer import stop
from transfer.backbone import Backbone, InputFormat
from transfer.console import progress
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.folders import Folders

CODE_VERSION = 1  # part of every cache key: raise it when the pixels or the forward change
IMAGES_PER_BATCH = 256
LOOK_AGAIN_S = 0.5  # at a lock that another process holds
IMAGES_PER_PART = 8192  # after so many an interrupted extraction goes on


@dataclass(frozen=True, kw_only=True)
class EvalTransform:
    """Resize the short side, crop the center (or squash the whole image), normalize."""

    resize_px: int
    crop_px: int
    squash: bool = False
    """Resize to resize_px x resize_px regardless of the aspect, then to crop_px x crop_px."""

    def __call__(self, image: Image.Image, form: InputFormat) -> Tensor:
        """(3, crop_px, crop_px), float32."""
        return normalized(self.pixels(image), form)

    def pixels(self, image: Image.Image) -> Image.Image:
        """The image as the network sees it, before normalization."""
        if self.squash:
            whole = image.resize((self.resize_px, self.resize_px), Image.Resampling.BILINEAR)
            return whole.resize((self.crop_px, self.crop_px), Image.Resampling.BILINEAR)
        small = v2.functional.resize(image, [self.resize_px])
        center: Image.Image = v2.functional.center_crop(small, [self.crop_px, self.crop_px])
        return center


def normalized(image: Image.Image, form: InputFormat) -> Tensor:
    """(3, H, W) float32, by the mean and standard deviation that the backbone expects."""
    raw = v2.functional.to_dtype(v2.functional.pil_to_tensor(image), torch.float32, scale=True)
    pixels: Tensor = v2.functional.normalize(raw, list(form.mean), list(form.std))
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


def frozen_network(backbone: Backbone) -> nn.Module:
    """The backbone on the device, in the memory layout its convolutions run fastest in."""
    network: nn.Module = backbone.network().to(device(), memory_format=torch.channels_last)
    return network


@torch.no_grad()
def forward(network: nn.Module, images: Tensor) -> Tensor:
    """Features (n, C) in float32 of images (n, 3, H, W); bf16 arithmetic on a GPU."""
    where = next(network.parameters()).device
    batch = images.to(where, memory_format=torch.channels_last, non_blocking=True)
    with torch.autocast(where.type, dtype=torch.bfloat16, enabled=where.type == "cuda"):
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
    images = open_images(key, split, folders)
    path = folders.cache / "features" / f"{cache_key(backbone, images, transform)}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        with _locked(path.with_suffix(".lock")):
            if not path.exists():  # another process may have made it while this one waited
                _extract(backbone, images, transform, path, f"{key} {split}")
    mapped = np.load(path, mmap_mode="c")
    return Features(torch.from_numpy(mapped), images.labels)


def cache_key(backbone: Backbone, images: Images, transform: EvalTransform) -> str:
    """Hash of weights, data, transform, precision and code."""
    parts = [backbone.sha256, images.fingerprint, asdict(transform), device().type, CODE_VERSION]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


class _Prepared(Dataset[Tensor]):
    """Images under the evaluation transform."""

    def __init__(self, images: Images, transform: EvalTransform, form: InputFormat) -> None:
        self.images, self.transform, self.form = images, transform, form

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.transform(self.images[index][0], self.form)


def _extract(
    backbone: Backbone, images: Images, transform: EvalTransform, path: Path, subject: str
) -> None:
    """Fill path.partial part by part, then rename it; a later call goes on after the last part."""
    partial, count = path.with_suffix(".partial"), path.with_suffix(".count")
    done = int(count.read_text()) if partial.exists() and count.exists() else 0
    shape = (len(images), backbone.feature_dim)
    store = (
        open_memmap(partial, mode="r+")
        if done
        else open_memmap(partial, mode="w+", dtype=np.float32, shape=shape)
    )
    with partial.open("r+b") as file:  # a full disk is an error here, a mapped page would kill
        os.posix_fallocate(file.fileno(), 0, partial.stat().st_size)
    network = frozen_network(backbone)
    prepared = _Prepared(images, transform, backbone.input)
    with progress("features", subject, len(images), done=done) as counter:
        while done < len(images):
            upto = min(done + IMAGES_PER_PART, len(images))
            part = Subset(prepared, range(done, upto))
            for batch in DataLoader(part, IMAGES_PER_BATCH, num_workers=num_workers(upto - done)):
                store[done : done + len(batch)] = forward(network, batch).cpu().numpy()
                done += len(batch)
                counter.add(len(batch))
            store.flush()
            count.write_text(str(done))
            stop.leave_if_asked()
    del store
    partial.replace(path)
    count.unlink(missing_ok=True)


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
