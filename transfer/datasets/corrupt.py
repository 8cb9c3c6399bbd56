"""Corruptions of ImageNet-100's test images, for where ImageNet-C itself is absent.

Made by torch-uncertainty's port of the benchmark's corruptions (the extra "corruptions"), which its
authors keep close to the published ones, not equal; it has no spatter. So the images go into a
folder, a data set and a protocol of their own, and no table mixes them with ImageNet-C.
"""

import hashlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from transfer.console import progress
from transfer.datasets.catalog import open_split
from transfer.datasets.expected import Sizes, mark_small, small_sizes
from transfer.datasets.imagenet_c import KINDS, MADE_FOLDER, SEVERITIES
from transfer.datasets.images import DataError, Images

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
"""Kind -> the package's class."""
RESIZE_PX, CROP_PX = 256, 224
"""As ImageNet-C was made."""
JPEG_QUALITY = 85
"""Of the published images."""

Corruption = Callable[[Tensor], Tensor]
"""Of pixels (3, H, W) float32, 0 to 1."""


def package_corruptions() -> dict[tuple[str, int], Corruption]:
    """By kind and severity; DataError with the way to get them where the package is absent."""
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


def make_corruptions(data: Path) -> str:
    """Write imagenet-c-made; a line on what it holds. An image that is there is not made again."""
    images = open_split("in100", data, "test")
    corruptions = package_corruptions()
    total = len(images) * len(corruptions)
    with progress("corrupt", "in100 test", total) as counter:
        for i in range(len(images)):
            _write_all(data / MADE_FOLDER, images, i, corruptions)
            counter.add(len(corruptions))
    if "in100" in small_sizes(data):
        sizes = Sizes(classes=len(images.class_names), counts={"test": total})
        mark_small(data, "imagenet_c100_made", sizes)
    kinds = len({kind for kind, _ in corruptions})
    return f"{total} images, {kinds} corruptions by {PACKAGE} {version(PACKAGE)}"


def _write_all(
    folder: Path, images: Images, i: int, corruptions: dict[tuple[str, int], Corruption]
) -> None:
    """Every corruption of one image; what is drawn depends on nothing but its name."""
    name = Path(images.name(i)).name
    wnid = images.class_names[int(images.labels[i])]
    files = {
        key: folder / key[0] / str(key[1]) / wnid / f"{Path(name).stem}.JPEG" for key in corruptions
    }
    if all(file.exists() for file in files.values()):
        return
    small = functional.resize(images[i][0], [RESIZE_PX])
    crop = functional.center_crop(small, [CROP_PX, CROP_PX])
    pixels = functional.to_dtype(functional.pil_to_tensor(crop), torch.float32, scale=True)
    for key, file in files.items():
        seed = hashlib.sha256(f"{key} {name}".encode()).digest()[:7]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(seed))
            corrupted = corruptions[key](pixels.clone())
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        image = functional.to_pil_image(corrupted.clamp(0, 1))
        image.save(partial, "JPEG", quality=JPEG_QUALITY)
        partial.replace(file)
