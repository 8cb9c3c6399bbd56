"""CUB-200-2011, Wah et al. 2011, with its published train and test images.

val is a seeded draw of the same number of images from each class.
"""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.splits import balanced_split


def read_cub200(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads CUB_200_2011/{images, image_class_labels, train_test_split, classes}.txt, images/."""
    folder = data / "CUB_200_2011"
    files = _pairs(folder / "images.txt")
    classes = _pairs(folder / "classes.txt")
    label_of = {number: label for label, number in enumerate(classes)}
    class_of = _pairs(folder / "image_class_labels.txt")
    is_train = _pairs(folder / "train_test_split.txt")
    wanted = "0" if split == "test" else "1"
    numbers = [number for number in files if is_train[number] == wanted]
    names = [f"CUB_200_2011/images/{files[number]}" for number in numbers]
    labels = [label_of[class_of[number]] for number in numbers]
    images = image_files(data, names, labels, list(classes.values()))
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _pairs(listing: Path) -> dict[str, str]:
    """Lines of a number and a word."""
    with listing.open() as lines:
        return dict(line.split() for line in lines)
