"""Frozen features, extracted once and read from the cache afterwards.

There is one entry per backbone, split and transform. Its name is a hash of everything that
determines the features, apart from versions of libraries. It may be deleted at any time. Features
are written to disk during the extraction and memory-mapped afterwards. Several backbones can share
one pass over the images, which are then decoded once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pretrain.running.atomic_files import content_hash
from pretrain.running.processes import has_bfloat16, num_gpus, tf32_convolutions
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder, Precision
from transfer.frozen.transforms import EvalTransform

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images

RequestedPrecision = Precision | Literal["auto"]
"""Precision of frozen networks; auto: bfloat16 on a GPU, otherwise float32."""
CODE_VERSION = 2  # part of every cache key: raise it when pixels or forward pass change


@dataclass(frozen=True)
class Features:
    """Features and labels of one split, in the order of its images."""

    features: Tensor
    """(n, C) float32, memory-mapped from the cache."""
    labels: Tensor
    """(n,), or (n, L) for images with several labels."""

    @cached_property
    def digest(self) -> str:
        """Return a hash of features and labels."""
        return hash_of(self.labels, self.features)


def hash_of(*tensors: Tensor) -> str:
    """Return a hash of all values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Predictions:
    """Predictions to compute metrics from, and details for the record."""

    scores: Tensor
    """(n, L) of the test split."""
    labels: Tensor
    """(n,) or (n, L)."""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainAndTest:
    """Features of training and test images."""

    train: Features
    test: Features
    class_names: tuple[str, ...]
    """Names of the L classes that occur in the labels."""

    @property
    def num_classes(self) -> int:
        """Return L; tasks of users read it (docs/howto/add_a_task.md)."""
        return len(self.class_names)


def open_images(key: str, split: str, folders: Folders) -> Images:
    """Return a split without the allowed bad images."""
    from transfer.datasets.catalog import open_split  # imports the readers of all datasets
    from transfer.datasets.splits import without

    return without(open_split(key, folders.data, split), folders.broken)


def features_of_backbones(
    backbones: Sequence[Encoder],
    key: str,
    split: str,
    transform: EvalTransform,
    folders: Folders,
) -> list[Features]:
    """Return the features of a split for each backbone.

    Missing entries are extracted in one pass over the images. Raises DataError if the dataset is
    missing.
    """
    import torch

    from transfer.frozen.extraction import extract
    from transfer.frozen.feature_file import read_rows

    images = open_images(key, split, folders)
    folder = folders.cache / "features"
    paths = [folder / f"{cache_key(backbone, images, transform)}.npy" for backbone in backbones]
    entries = dict(zip(paths, backbones, strict=True))
    shapes = {path: (len(images), entries[path].feature_dim) for path in paths}
    missing = {path: entries[path] for path in paths if read_rows(path, shapes[path]) is None}
    if missing:
        crops = None
        if folders.keep_crops:
            name = content_hash([images.fingerprint, asdict(transform), CODE_VERSION], 24)
            crops = folders.cache / "crops" / f"{name}.npy"
        rotated = f" turned by {90 * transform.turns}°" if transform.turns else ""
        extract(missing, images, transform, f"{key} {split}{rotated}", crops)
    return [
        Features(torch.from_numpy(np.load(path, mmap_mode="c")), images.labels) for path in paths
    ]


def arithmetic(backbone: Encoder) -> str:
    """Return the precision of a frozen network, with TF32 convolutions if this GPU uses them."""
    in_tf32 = backbone.precision == "float32" and tf32_convolutions()
    return f"{backbone.precision}-tf32" if in_tf32 else backbone.precision


def cache_key(backbone: Encoder, images: Images, transform: EvalTransform) -> str:
    """Return a hash of everything that determines the features."""
    from transfer.frozen.network import device

    fields = [
        backbone.sha256,
        images.fingerprint,
        asdict(transform),
        device().type,
        arithmetic(backbone),
        CODE_VERSION,
    ]
    return content_hash(fields, 24)


def feature_precision(requested: RequestedPrecision) -> Precision:
    """Return the precision of frozen networks on this machine.

    "auto" on a CPU is float32 without folded batch norms. Folding would save a sixth of the time,
    but would change the last bits of all float32 features in caches, records and unfinished
    trainings.
    """
    if requested == "auto":
        return "bfloat16" if num_gpus() and has_bfloat16() else "float32"
    return requested
