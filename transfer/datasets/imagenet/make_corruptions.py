"""python -m transfer make-corruptions: a stand-in for ImageNet-C where that is absent.

torch-uncertainty's port of the benchmark's corruptions (the extra "corruptions") is applied to
ImageNet-100's test images. Its authors keep it close to the published ones, not equal, and it has
no spatter. So the images go into a folder, a data set and a protocol of their own, and no table
mixes them with ImageNet-C.
"""

import hashlib
import os
from collections.abc import Callable
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
from pretrain.running.loader import load_batches
from transfer.datasets.catalog import expected_sizes, open_split
from transfer.datasets.expected import DataError, Sizes, small_sizes
from transfer.datasets.imagenet.imagenet_c import KINDS, SEVERITIES
from transfer.datasets.imagenet.imagenet_c_made import (
    FOLDER,
    MANIFEST_FILE,
    Manifest,
    read_manifest,
    write_manifest,
)
from transfer.datasets.images import Images
from transfer.datasets.synthetic.labeled import mark_small
from transfer.running.console import progress

PACKAGE = "torch-uncertainty"
CLASS_NAMES = {
    "gaussian_noise": "GaussianNoise",
    "shot_noise": "ShotNoise",
    "impulse_noise": "ImpulseNoise",
    "defocus_blur": "DefocusBlur",
    "glass_blur": "GlassBlur",
    "motion_blur": "MotionBlur",
    "zoom_blur": "ZoomBlur",
    "snow": "Snow",
    "frost": "Frost",
    "fog": "Fog",
    "brightness": "Brightness",
    "contrast": "Contrast",
    "elastic_transform": "Elastic",
    "pixelate": "Pixelate",
    "jpeg_compression": "JPEGCompression",
    "speckle_noise": "SpeckleNoise",
    "gaussian_blur": "GaussianBlur",
    "saturate": "Saturation",
}
"""The package's class for each kind of corruption."""
RESIZE_PX, CROP_PX = 256, 224
"""Shorter side and crop of the clean images, the same as in ImageNet-C."""
JPEG_QUALITY = 85
"""JPEG quality of the published images."""
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
"""First and last marker of every JPEG file."""
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
    module: Any = corruption
    return {
        (kind, severity): getattr(module, CLASS_NAMES[kind])(severity)
        for kind in KINDS
        if kind in CLASS_NAMES
        for severity in SEVERITIES
    }


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
            f"ImageNet-100 has {len(images)} test images, {expected} are expected; complete it "
            "first, python -m transfer check-data lists what is missing"
        )
    corruptions = package_corruptions()
    manifest = Manifest(
        package=PACKAGE,
        version=version(PACKAGE),
        kinds=tuple(dict.fromkeys(kind for kind, _ in corruptions)),
        source=images.fingerprint,
        images=tuple(_corrupted_name(images, i) for i in range(len(images))),
    )
    folder = data / FOLDER
    _write_unfinished_manifest(folder, manifest)
    total = len(images) * len(corruptions)
    # a worker computes in one thread, so that the order of threads shows in no image
    missing = MissingCorruptions(folder, images, corruptions)
    work = load_batches(missing.__getitem__, range(len(missing)), num_workers=workers)
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
    if present not in (None, manifest) or (
        present is None and folder.exists() and any(folder.iterdir())
    ):
        origin = "of unknown origin" if present is None else f"by {present.maker}"
        raise DataError(
            f"{folder} holds corruptions {origin}, not those of these {len(manifest.images)} test "
            f"images by {manifest.maker}; remove it, or move it away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder / UNFINISHED_FILE, manifest)


def _corrupted_name(images: Images, i: int) -> str:
    """Return WNID/FILE of a corrupted image."""
    wnid = images.class_names[int(images.labels[i])]
    return f"{wnid}/{Path(images.name(i)).stem}.JPEG"


class MissingCorruptions:
    """Items that write the missing corruptions of image i and return how many there are."""

    def __init__(
        self, folder: Path, images: Images, corruptions: dict[tuple[str, int], Corruption]
    ) -> None:
        self.folder, self.images, self.corruptions = folder, images, corruptions

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> int:
        name = _corrupted_name(self.images, i)
        files = {key: self.folder / key[0] / str(key[1]) / name for key in self.corruptions}
        missing = [key for key, file in files.items() if not is_whole(file)]
        if missing:
            small = functional.resize(self.images[i][0], [RESIZE_PX])
            crop = functional.center_crop(small, [CROP_PX, CROP_PX])
            pixels = functional.to_dtype(functional.pil_to_tensor(crop), torch.float32, scale=True)
        for key in missing:
            image = round_to_image(corrupt(pixels, self.corruptions[key], f"{key} {name}"))
            with explain_write_errors(files[key], "--data"):
                files[key].parent.mkdir(parents=True, exist_ok=True)
                partial = files[key].with_suffix(".partial")
                image.save(partial, "JPEG", quality=JPEG_QUALITY)
                partial.replace(files[key])
        return len(files)


def is_whole(file: Path) -> bool:
    """Return whether a JPEG file exists and has its first and last marker.

    Images are not synced to the disk one by one, so a machine that dies may cut them short, or
    leave zeros.
    """
    try:
        with file.open("rb") as content:
            start = content.read(len(JPEG_START))
            content.seek(-len(JPEG_END), os.SEEK_END)
            return start == JPEG_START and content.read() == JPEG_END
    except OSError:  # absent, or shorter than a marker
        return False


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
