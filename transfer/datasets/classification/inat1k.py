"""iNaturalist 2019 (1,010 species), with LooC's larger test set: arXiv:2008.05659, appendix B.

The published val images are few, so a tenth of the published training images is added to them as
test, drawn at random without regard to class. trainval is the rest of the training images. The
paper publishes no list. Here the SHA-256 of a fixed seed and a file's name decides, so the list is
the same on every machine. val is a draw of three images per species, like the published one.
"""

import json
from pathlib import Path

import numpy as np

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import info, source
from transfer.datasets.splits import balanced_split, seeded_ranks
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs, write_file

RESPLIT_SEED = "looc re-split 0"
SMALL_MOVED = 4
"""Images per class of the small train2019.json, on average, that are moved to the test images."""


def read_inat1k(data: Path, split: str, sizes: Sizes) -> Images:
    """Read inat2019/{train2019, val2019}.json and the images that they name."""
    train, val = (_read_published(data, part) for part in ("train2019", "val2019"))
    num_moved = sizes.counts["test"] - len(val)
    if not 0 <= num_moved < len(train):
        raise DataError(
            f"{len(train)} training and {len(val)} val images, {sizes.counts['test']} are needed "
            "for the test; the annotation files are incomplete"
        )
    one_group = np.zeros(len(train), dtype=np.int64)
    moved = seeded_ranks(train.source.encoded_names, one_group, RESPLIT_SEED) < num_moved
    if split == "test":
        return _concatenate(data, val, train.subset(np.flatnonzero(moved)))
    stays = train.subset(np.flatnonzero(~moved))
    return balanced_split(stays, split, val_per_class=sizes.per_class("val"))


def _read_published(data: Path, part: str) -> Images:
    """Return the images of one annotation file; classes in the order of their ids."""
    content = json.loads((data / "inat2019" / f"{part}.json").read_bytes())
    ids = sorted(int(category["id"]) for category in content["categories"])
    label_of = {category_id: label for label, category_id in enumerate(ids)}
    class_of = {int(a["image_id"]): int(a["category_id"]) for a in content["annotations"]}
    names = [f"inat2019/{image['file_name']}" for image in content["images"]]
    labels = [label_of[class_of[int(image["id"])]] for image in content["images"]]
    return image_files(data, names, labels, [str(category_id) for category_id in ids])


def _concatenate(data: Path, *parts: Images) -> Images:
    names = [part.name(i) for part in parts for i in range(len(part))]
    labels = [int(label) for part in parts for label in part.label_array]
    return image_files(data, names, labels, parts[0].class_names)


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, and an annotation file for train and one for val."""
    folder = data / "inat2019"
    kingdoms = ["Amphibians", "Birds", "Fungi", "Insects", "Plants", "Reptiles"]
    categories = [{"id": i, "name": str(i)} for i in range(per_class.classes)]
    number = 0
    parts = {"train2019": per_class.trainval + SMALL_MOVED, "val2019": per_class.test - SMALL_MOVED}
    for part, num_images in parts.items():
        images, annotations = [], []
        for label in range(per_class.classes):
            for _ in range(num_images):
                number += 1
                file = f"train_val2019/{kingdoms[label]}/{label}/{number:032x}.jpg"
                write_file(folder / file, draw(label))
                images.append({"id": number, "file_name": file})
                annotations.append({"id": number, "image_id": number, "category_id": label})
        content = {"images": images, "annotations": annotations, "categories": categories}
        write_file(folder / f"{part}.json", json.dumps(content).encode())


DATASETS = {
    "inat1k": info(
        "inat1k",
        read=read_inat1k,
        small=labeled_jpegs(PerClass(classes=6), first_kind=15, write=_write_small),
        sources=(source("inat2019"),),
    ),
}
