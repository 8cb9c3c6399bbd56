"""iNaturalist 2019 (1,010 species), with LooC's larger test set: arXiv:2008.05659, appendix B.

The published val images are few, so a tenth of the published training images, drawn at random from
all of them alike, is moved to them: test is both together, trainval the training images that stay.
The paper publishes no list; here the SHA-256 of a fixed seed and a file's name decides, so the list
is the same on every machine. val is a draw of three images per species, as the published one.
"""

import json
from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError, Images, image_files
from transfer.datasets.splits import balanced_split, seeded_ranks

RESPLIT_SEED = "looc re-split 0"


def read_inat1k(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads inat2019/{train2019, val2019}.json and the images that they name."""
    train, val = (_published(data, part) for part in ("train2019", "val2019"))
    num_moved = sizes.counts["test"] - len(val)
    if not 0 <= num_moved < len(train):
        raise DataError(
            f"{len(train)} training and {len(val)} val images, {sizes.counts['test']} are wanted "
            "for the test; the annotation files are incomplete"
        )
    one_group = np.zeros(len(train), dtype=np.int64)
    moved = seeded_ranks(train.source.encoded_names, one_group, RESPLIT_SEED) < num_moved
    if split == "test":
        return _together(data, val, train.subset(np.flatnonzero(moved)))
    stays = train.subset(np.flatnonzero(~moved))
    return balanced_split(stays, split, val_per_class=sizes.per_class("val"))


def _published(data: Path, part: str) -> Images:
    """The images of one annotation file; classes in the order of their ids."""
    content = json.loads((data / "inat2019" / f"{part}.json").read_bytes())
    ids = sorted(int(category["id"]) for category in content["categories"])
    label_of = {category_id: label for label, category_id in enumerate(ids)}
    class_of = {int(a["image_id"]): int(a["category_id"]) for a in content["annotations"]}
    names = [f"inat2019/{image['file_name']}" for image in content["images"]]
    labels = [label_of[class_of[int(image["id"])]] for image in content["images"]]
    return image_files(data, names, labels, [str(category_id) for category_id in ids])


def _together(data: Path, *parts: Images) -> Images:
    names = [part.name(i) for part in parts for i in range(len(part))]
    labels = [int(label) for part in parts for label in part.labels]
    return image_files(data, names, labels, parts[0].class_names)
