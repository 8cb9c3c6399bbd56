"""ObjectNet, Barbu et al., NeurIPS 2019: the thirteen classes that ImageNet-100 has as well.

Only a test split. Every image has a red border of two pixels, the publisher's sign that it must not
be trained on; evaluation crops it. Classes are named by the wnid of their ImageNet class, so that a
classifier of ImageNet-100 finds its own.
"""

import json
from pathlib import Path

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError, Images, image_files

FOLDER = "objectnet-1.0"
BORDER_PX = 2
WNIDS = {
    "Bottle cap": "n02877765",
    "Wheel": "n02974003",  # car wheel
    "Keyboard": "n03085013",
    "Helmet": "n03379051",  # football helmet
    "Iron (for clothes)": "n03584829",
    "Jeans": "n03594734",
    "Lampshade": "n03637318",
    "Laptop (open)": "n03642806",
    "Mixing / Salad Bowl": "n03775546",
    "Bench": "n03891251",
    "Chair": "n04099969",  # rocking chair
    "Safety pin": "n04127249",
    "Vacuum cleaner": "n04517823",
}
"""ObjectNet's label -> ImageNet-100's class."""
PUBLISHED_IMAGES = 50_000
"""Of all 313 classes, in round numbers; nobody tells how many each class has."""
LEAST_IMAGES = 49_500
"""Of the whole: fewer cannot be rounded to what is published."""


def read_objectnet13(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads objectnet-1.0/images/FOLDER/*.png; mappings/ tells each folder's label."""
    if split != "test":
        raise DataError(f"it has a test split only, not {split!r}")
    root = data / FOLDER
    if not sizes.counts["test"]:
        _refuse_part(data, root / "images")
    folder_labels = json.loads((root / "mappings" / "folder_to_objectnet_label.json").read_text())
    folders = {WNIDS[label]: folder for folder, label in folder_labels.items() if label in WNIDS}
    wnids = sorted(folders)
    images = read_class_folders(data, root / "images", [folders[wnid] for wnid in wnids])
    names = [images.name(i) for i in range(len(images))]
    return image_files(data, names, images.labels.tolist(), wnids)


def _refuse_part(data: Path, folder: Path) -> None:
    """Whether the thirteen classes are whole can only be told of all classes together."""
    classes = class_names(folder)
    found = len(read_class_folders(data, folder, classes))
    if found < LEAST_IMAGES:
        raise DataError(
            f"{found:,} images in {len(classes)} class folders, about {PUBLISHED_IMAGES:,} in 313 "
            "are published; unpack it again, all of it"
        )
