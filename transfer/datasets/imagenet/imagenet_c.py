"""The ImageNet-100 classes of ImageNet-C: Hendrycks and Dietterich, ICLR 2019, arXiv:1903.12261.

Only a test split: every val image under every corruption at every severity. An image's name,
KIND/SEVERITY/WNID/FILE below the set's folder, holds both.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.imagenet.imagenet import (
    imagenet100_wnids,
    paint_small_class,
    small_in100_wnids,
)
from transfer.datasets.images import Images, class_names, image_files, read_class_folders
from transfer.datasets.info import SmallVersion, info, source
from transfer.datasets.synthetic.labeled import write_file
from transfer.datasets.synthetic.patterns import jpeg

GROUPS: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
"""The fifteen corruptions, in the benchmark's groups."""
EXTRA_KINDS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""Four more corruptions, published beside the fifteen (extra.tar)."""
MAIN_KINDS = tuple(kind for kinds in GROUPS.values() for kind in kinds)
KINDS = MAIN_KINDS + EXTRA_KINDS
SEVERITIES = (1, 2, 3, 4, 5)
FOLDER = "imagenet-c"
VAL_IMAGES = 5_000
"""Images of ImageNet-100 under each corruption at each severity."""


def kind_and_severity(name: str) -> tuple[str, int]:
    """Return the corruption and the severity of an image, from its name."""
    _, kind, severity, *_ = name.split("/")
    return kind, int(severity)


def read_imagenet_c100(data: Path, split: str, sizes: Sizes) -> Images:
    """Read imagenet-c/KIND/SEVERITY/WNID/*.JPEG of nineteen kinds, or of the fifteen."""
    if split != "test":
        raise DataError(f"the set has a test split only, and {split!r} was asked for")
    kinds = expected_kinds(data)
    absent = [kind for kind in kinds if not (data / FOLDER / kind).is_dir()]
    if absent:
        raise DataError(f"{len(absent)} of {len(kinds)} corruptions are missing: {absent[:4]}")
    listed = set(imagenet100_wnids())
    folders = {name for kind in kinds for name in class_names(data / FOLDER / kind / "1")}
    wnids = sorted(folders & listed)
    names: list[str] = []
    labels: list[int] = []
    for kind in kinds:
        for severity in SEVERITIES:
            part = read_class_folders(data, data / FOLDER / kind / str(severity), wnids)
            names += [part.name(i) for i in range(len(part))]
            labels += part.label_array.tolist()
    return image_files(data, names, labels, wnids)


def expected_kinds(data: Path) -> tuple[str, ...]:
    """Return all nineteen corruptions, or the fifteen if nothing of extra.tar was unpacked."""
    extra = any((data / FOLDER / kind).is_dir() for kind in EXTRA_KINDS)
    return KINDS if extra else MAIN_KINDS


def unpacked_counts(data: Path) -> dict[str, int]:
    """Return the published number of images, with or without those of extra.tar."""
    return {"test": len(expected_kinds(data)) * len(SEVERITIES) * VAL_IMAGES}


def missing_kinds(data: Path) -> list[str]:
    """Return a sentence if the four extra corruptions are absent: some metrics need them."""
    if not (data / FOLDER).is_dir() or expected_kinds(data) == KINDS:
        return []
    return ["ImageNet-C without extra.tar: 15 kinds, no all19_top1 and no sev3plus19_top1"]


def write_small_corruptions(folder: Path, kinds: Sequence[str], rng: np.random.Generator) -> None:
    """Write KIND/SEVERITY/WNID with one image per class; every kind of corruption is noise."""
    for kind in kinds:
        for severity in SEVERITIES:
            for number, wnid in enumerate(small_in100_wnids()):
                pixels = paint_small_class(wnid, rng)
                noisy = pixels + rng.normal(0, 8 * severity, size=pixels.shape)
                name = f"ILSVRC2012_val_{number + 1:08d}.JPEG"
                content = jpeg(np.clip(noisy, 0, 255).astype(np.uint8))
                write_file(folder / kind / str(severity) / wnid / name, content)


def small_corruption_sizes(num_kinds: int) -> Sizes:
    """Return what `write_small_corruptions` writes, for `small-data.json`."""
    classes = len(small_in100_wnids())
    counts = {"test": classes * num_kinds * len(SEVERITIES)}
    return Sizes(classes=classes, counts=counts, drawn=True)


def _write_small(data: Path, rng: np.random.Generator) -> None:
    write_small_corruptions(data / FOLDER, KINDS, rng)


RECORD = "https://zenodo.org/records/2235448"
ARCHIVES = {
    "noise": (22_565_673_785, "e80562d7f6c3f8834afb1ecf27252745"),
    "blur": (7_112_704_951, "2d8e81fdd8e07fef67b9334fa635e45c"),
    "weather": (12_797_438_995, "33ffea4db4d93fe4a428c40a6ce0c25d"),
    "digital": (7_757_510_705, "89157860d7b10d5797849337ca2e5c03"),
    "extra": (15_789_490_144, "d492dfba5fc162d8ec2c3cd8ee672984"),
}
"""Bytes and MD5 of each archive, as Zenodo states them."""
PLACES = {**GROUPS, "extra": EXTRA_KINDS}

DATASETS = {
    "imagenet_c100": info(
        "imagenet_c100",
        counts_of_parts=unpacked_counts,
        departures=missing_kinds,
        known_classes=imagenet100_wnids,
        read=read_imagenet_c100,
        small=SmallVersion(sizes=small_corruption_sizes(len(KINDS)), write=_write_small),
        sources=(source("imagenet-c"),),
    ),
}
