"""python -m transfer make-corruptions: a stand-in for ImageNet-C where that is absent.

torch-uncertainty's port of the benchmark's corruptions (the extra "corruptions") is applied to
ImageNet-100's test images. Its authors keep it close to the published ones, not equal, and it has
no spatter. So the images go into a folder, a data set and a protocol of their own, and no table
mixes them with ImageNet-C.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional

from pretrain.running import stop
from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.console import progress
from pretrain.running.loader import load_batches
from transfer.datasets.catalog import expected_sizes, open_split
from transfer.datasets.check import is_truncated
from transfer.datasets.expected import DataError, Sizes, mark_small, small_sizes
from transfer.datasets.imagenet.imagenet_c import (
    KINDS,
    MADE_FOLDER,
    MANIFEST_FILE,
    SEVERITIES,
    Manifest,
    read_manifest,
    write_manifest,
)
from transfer.datasets.images import Images

PACKAGE = "torch-uncertainty"
CLASS_NAMES = {
    "elastic_transform": "Elastic",
    "jpeg_compression": "JPEGCompression",
    "saturate": "Saturation",
}
"""The package's class for kinds of corruption whose joined words are not its name."""
MISSING = "spatter"
"""Kind of corruption that the package lacks."""
RESIZE_PX, CROP_PX = 256, 224
"""Shorter side and crop of the clean images, the same as in ImageNet-C."""
JPEG_QUALITY = 85
"""JPEG quality of the published images."""
UNFINISHED_FILE = "making.json"
"""Name of the manifest until all images are there."""

Corruption = Callable[[Tensor], Tensor]
"""Returns corrupted pixels (3, H, W) float32, 0 to 1. Some have `rng`, a NumPy generator."""


def package_corruptions() -> dict[tuple[str, int], Corruption]:
    """Return the corruption of each kind and severity; DataError if the package is absent."""
    try:
        from torch_uncertainty.transforms import corruption
    except ImportError as error:
        raise DataError(
            f"{PACKAGE} cannot be imported ({error}); pip install -e '.[corruptions]'"
        ) from error
    kinds = [kind for kind in KINDS if kind != MISSING]
    classes: dict[str, Any] = {
        kind: getattr(corruption, CLASS_NAMES.get(kind, kind.title().replace("_", "")))
        for kind in kinds
    }
    return {(kind, severity): classes[kind](severity) for kind in kinds for severity in SEVERITIES}


def make_corruptions(data: Path, *, workers: int = 1) -> str:
    """Write imagenet-c-made and return a line on its content. Images that are there are kept.

    workers: processes; their number does not change an image.
    """
    if workers < 1:
        raise ValueError(f"--workers is {workers}; expected at least 1")
    images = open_split("in100", data, "test")
    expected = expected_sizes("in100", data).counts.get("test", len(images))
    if len(images) != expected:
        raise DataError(
            f"ImageNet-100 has {len(images)} test images, {expected} are expected; "
            "complete it first, python -m transfer check-data lists what is missing"
        )
    corruptions = package_corruptions()
    manifest = Manifest(
        package=PACKAGE,
        version=version(PACKAGE),
        kinds=tuple(dict.fromkeys(kind for kind, _ in corruptions)),
        source=images.fingerprint,
    )
    folder = data / MADE_FOLDER
    _write_unfinished_manifest(folder, manifest)
    total = len(images) * len(corruptions)
    # a worker computes in one thread, so that the order of threads shows in no image
    write = partial(_write_missing, folder, images, corruptions)
    work = load_batches(write, range(len(images)), num_workers=workers)
    with progress("corrupt", "in100 test", total) as counter:
        for done in work:
            counter.add(done)
            stop.exit_if_requested()
    if "in100" in small_sizes(data):
        sizes = Sizes(classes=len(images.class_names), counts={"test": total})
        mark_small(data, "imagenet_c100_made", sizes)
    (folder / UNFINISHED_FILE).replace(folder / MANIFEST_FILE)
    return f"{total} images, {len(manifest.kinds)} corruptions by {manifest.maker}"


def _write_unfinished_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the unfinished manifest; DataError if the folder holds images of other origin."""
    present = read_manifest(folder / MANIFEST_FILE) or read_manifest(folder / UNFINISHED_FILE)
    is_foreign = (
        folder.exists() and any(folder.iterdir()) if present is None else present != manifest
    )
    if is_foreign:
        origin = "of unknown origin" if present is None else f"by {present.maker}"
        raise DataError(
            f"{folder} holds corruptions {origin}, not those of these test images by "
            f"{manifest.maker}; remove it, or move it away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder / UNFINISHED_FILE, manifest)


def _write_missing(
    folder: Path, images: Images, corruptions: dict[tuple[str, int], Corruption], i: int
) -> int:
    """Write the missing corruptions of image i; return how many there are then.

    Images are not synced to the disk one by one, so a machine that dies may cut them short, or
    leave zeros; these are made again.
    """
    name = f"{images.class_names[images.label_array[i]]}/{Path(images.name(i)).stem}.JPEG"
    files = {key: folder / key[0] / str(key[1]) / name for key in corruptions}
    missing = [key for key, file in files.items() if not file.exists() or is_truncated(file)]
    if missing:
        small = functional.resize(images[i][0], [RESIZE_PX])
        crop = functional.center_crop(small, [CROP_PX, CROP_PX])
        pixels = functional.to_dtype(functional.pil_to_tensor(crop), torch.float32, scale=True)
    for key in missing:
        image = round_to_image(corrupt(pixels, corruptions[key], f"{key} {name}"))
        with explain_write_errors(files[key], "--data"):
            files[key].parent.mkdir(parents=True, exist_ok=True)
            image.save(files[key], "JPEG", quality=JPEG_QUALITY)
    return len(files)


def corrupt(pixels: Tensor, corruption: Corruption, name: str) -> Tensor:
    """Return the pixels (C, H, W), 0 to 1, after a corruption.

    Its random numbers depend only on the name.
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])
    if hasattr(corruption, "rng"):
        corruption.rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return corruption(pixels.clone())


def round_to_image(pixels: Tensor) -> Image.Image:
    """Return pixels (C, H, W), 0 to 1, as an image, rounded to the nearest of 256 levels."""
    levels = (255 * pixels.clamp(0, 1)).round().to(torch.uint8)
    image: Image.Image = functional.to_pil_image(levels)
    return image
