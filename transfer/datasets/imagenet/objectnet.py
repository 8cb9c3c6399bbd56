"""ObjectNet (Barbu et al., NeurIPS 2019): the thirteen classes shared with ImageNet-100.

There is only a test split. Each image has a red border of two pixels, with which the publishers
mark images that must not be trained on; the evaluation crops it. Classes are named by the wnid of
their ImageNet class, to match them with the outputs of an ImageNet-100 classifier.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transfer.datasets.expected import SMALL_DATA, DataError, Sizes
from transfer.datasets.imagenet.imagenet import SMALL_WNIDS, paint_small_class
from transfer.datasets.images import Images, class_names, read_class_folders
from transfer.datasets.info import SmallVersion, info, source
from transfer.datasets.lists import read_json
from transfer.datasets.synthetic.labeled import write_file
from transfer.datasets.synthetic.patterns import png

FOLDER = "objectnet-1.0"
BORDER_PX = 2
WNIDS = {
    label: wnid
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines()
    for wnid, _, label in [line.partition(" ")]
}
"""ImageNet-100 class of each ObjectNet label."""
MIN_IMAGES = 49_500
"""Minimum total that rounds to 50,000.

The paper gives only this total, no counts per class.
"""
SMALL_LABELS = {wnid: label for label, wnid in WNIDS.items() if wnid in SMALL_WNIDS}
SMALL_PER_CLASS = 12


def with_readable_names(wnids: Sequence[str]) -> tuple[str, ...]:
    """Return class names for reports: wnids, with ObjectNet's labels if possible."""
    labels = {wnid: label for label, wnid in WNIDS.items()}
    return tuple(f"{labels[wnid]} ({wnid})" if wnid in labels else wnid for wnid in wnids)


def read_objectnet13(data: Path, split: str, sizes: Sizes) -> Images:
    """Read objectnet-1.0/images/FOLDER/*.png; mappings/ contains each folder's label."""
    root = data / FOLDER
    if not sizes.counts["test"]:  # unpublished
        classes = class_names(root / "images")
        num_images = len(read_class_folders(data, root / "images", classes))
        if num_images < MIN_IMAGES:  # only the total is published
            raise DataError(
                f"{num_images:,} images in {len(classes)} class folders, but about "
                "50,000 in 313 are published; unpack the complete archive again. If it is an "
                f"excerpt, enter its sizes in {SMALL_DATA}"
            )
    folder_labels = read_json(root / "mappings" / "folder_to_objectnet_label.json")
    folders = {WNIDS[label]: folder for folder, label in folder_labels.items() if label in WNIDS}
    wnids = sorted(folders)
    images = read_class_folders(data, root / "images", [folders[wnid] for wnid in wnids])
    return Images(images.source, images.label_array, wnids, notes=images.notes)


def _write_small(data: Path, rng: np.random.Generator) -> None:
    """Write images/FOLDER/*.png with the red border, and the folder labels in mappings/."""
    folder = data / FOLDER
    folder_labels = {"air_freshener": "Air freshener"}  # not a class of ImageNet
    for label in SMALL_LABELS.values():
        folder_labels["".join(filter(str.isalpha, label)).lower()] = label
    content = json.dumps(folder_labels).encode()
    write_file(folder / "mappings" / "folder_to_objectnet_label.json", content)
    first_wnid, inside = next(iter(SMALL_LABELS)), slice(BORDER_PX, -BORDER_PX)
    for name, label in folder_labels.items():
        for i in range(SMALL_PER_CLASS if label in WNIDS else 1):
            pixels = paint_small_class(WNIDS.get(label, first_wnid), rng)
            framed = np.full_like(pixels, (255, 0, 0))
            framed[inside, inside] = pixels[inside, inside]
            write_file(folder / "images" / name / f"{i:015x}.png", png(framed))


DATASETS = {
    "objectnet13": info(
        "objectnet13",
        read=read_objectnet13,
        small=SmallVersion(
            sizes=Sizes(classes=4, counts={"test": 4 * SMALL_PER_CLASS}, drawn=True),
            write=_write_small,
        ),
        sources=(source("objectnet"),),
    ),
}
