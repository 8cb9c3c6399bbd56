"""Places365-standard, Zhou et al., PAMI 2018.

The labels of its test images are not public: test is the official val split, val is a seeded draw
of 100 images per class from the training images. torchvision's class insists on the checksums of
the complete lists, which a small copy cannot have.
"""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import DataError, Images, image_files
from transfer.datasets.splits import balanced_split

TRAIN_FOLDERS = ("data_256_standard", "data_256", "data_large_standard", "data_large")
"""The 256-pixel version is preferred; the second name is what its archive unpacks to."""
VAL_FOLDERS = ("val_256", "val_large")


def read_places365(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads places365/categories_places365.txt, the lists beside it and the images they name."""
    folder = data / "places365"
    classes = [name for name, _ in _pairs(folder / "categories_places365.txt")]
    listing, choices = (
        ("places365_val.txt", VAL_FOLDERS)
        if split == "test"
        else ("places365_train_standard.txt", TRAIN_FOLDERS)
    )
    prefix = f"places365/{_first_present(folder, choices)}"
    listed = _pairs(folder / listing)
    names = [f"{prefix}/{name.lstrip('/')}" for name, _ in listed]
    images = image_files(data, names, [label for _, label in listed], classes)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _pairs(listing: Path) -> list[tuple[str, int]]:
    """Lines of a name and a number."""
    with listing.open() as lines:
        return [(name, int(number)) for name, number in (line.split() for line in lines)]


def _first_present(folder: Path, choices: tuple[str, ...]) -> str:
    for name in choices:
        if (folder / name).is_dir():
            return name
    raise DataError(f"{folder}: none of the image folders {', '.join(choices)} is there")
