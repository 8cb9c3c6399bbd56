"""The ImageNet-100 classes of ImageNet-C, Hendrycks and Dietterich, ICLR 2019, arXiv:1903.12261.

There is only a test split: each val image with each corruption at each severity. Image names,
KIND/SEVERITY/WNID/FILE in the dataset's folder, contain corruption and severity.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.imagenet.imagenet import (
    imagenet100_wnids,
    paint_small_class,
    small_in100_wnids,
)
from transfer.datasets.images import Images, class_names, image_files, read_class_folders
from transfer.datasets.info import SmallVersion, facts, info, source
from transfer.datasets.synthetic.labeled import write_file
from transfer.datasets.synthetic.patterns import jpeg

GROUPS: dict[str, tuple[str, ...]] = dict(facts()["corruptions"])
"""The fifteen corruptions, in the benchmark's groups."""
EXTRA_KINDS = GROUPS.pop("extra")
"""Four additional corruptions, published separately (extra.tar)."""
MAIN_KINDS = tuple(kind for kinds in GROUPS.values() for kind in kinds)
KINDS = MAIN_KINDS + EXTRA_KINDS
SEVERITIES = (1, 2, 3, 4, 5)
FOLDER = "imagenet-c"
VAL_IMAGES = 5_000
"""ImageNet-100 images per corruption and severity."""


def kind_and_severity(name: str) -> tuple[str, int]:
    """Return the corruption and the severity of an image, from its name."""
    _, kind, severity, *_ = name.split("/")
    return kind, int(severity)


def read_imagenet_c100(data: Path, split: str, sizes: Sizes) -> Images:
    """Read imagenet-c/KIND/SEVERITY/WNID/*.JPEG of all fifteen or nineteen kinds."""
    folder, kinds = data / FOLDER, expected_kinds(data)
    missing = [kind for kind in kinds if not (folder / kind).is_dir()]
    if missing:
        raise DataError(f"{len(missing)} of {len(kinds)} corruptions are missing: {missing[:4]}")
    folders = {wnid for kind in kinds for wnid in class_names(folder / kind / "1")}
    wnids = sorted(folders.intersection(imagenet100_wnids()))
    names: list[str] = []
    labels: list[int] = []
    for kind in kinds:
        for severity in SEVERITIES:
            images = read_class_folders(data, folder / kind / str(severity), wnids)
            names += [images.name(i) for i in range(len(images))]
            labels += images.label_array.tolist()
    return image_files(data, names, labels, wnids)


def expected_kinds(data: Path) -> tuple[str, ...]:
    """Return all nineteen corruptions, or fifteen if extra.tar was not unpacked."""
    extra = any((data / FOLDER / kind).is_dir() for kind in EXTRA_KINDS)
    return KINDS if extra else MAIN_KINDS


def unpacked_counts(data: Path) -> dict[str, int]:
    """Return the published number of images, with or without extra.tar."""
    return {"test": len(expected_kinds(data)) * len(SEVERITIES) * VAL_IMAGES}


def missing_kinds(data: Path) -> list[str]:
    """Return a sentence if the extra corruptions are missing.

    Some metrics need them.
    """
    if not (data / FOLDER).is_dir() or expected_kinds(data) == KINDS:
        return []
    return ["ImageNet-C without extra.tar: 15 kinds, no all19_top1 and no sev3plus19_top1"]


def _write_small(data: Path, rng: np.random.Generator) -> None:
    """Write one noisy image per kind, severity and class."""
    for kind in KINDS:
        for severity in SEVERITIES:
            for number, wnid in enumerate(small_in100_wnids(), start=1):
                pixels = paint_small_class(wnid, rng)
                noisy = pixels + rng.normal(0, 8 * severity, size=pixels.shape)
                file = f"{kind}/{severity}/{wnid}/ILSVRC2012_val_{number:08d}.JPEG"
                write_file(data / FOLDER / file, jpeg(np.clip(noisy, 0, 255).astype(np.uint8)))


CLASSES = len(small_in100_wnids())
SMALL_COUNTS = {"test": CLASSES * len(KINDS) * len(SEVERITIES)}

DATASETS = {
    "imagenet_c100": info(
        "imagenet_c100",
        counts_of_parts=unpacked_counts,
        departures=missing_kinds,
        known_classes=imagenet100_wnids,
        read=read_imagenet_c100,
        small=SmallVersion(
            sizes=Sizes(classes=CLASSES, counts=SMALL_COUNTS, drawn=True), write=_write_small
        ),
        sources=(source("imagenet-c"),),
    ),
}
