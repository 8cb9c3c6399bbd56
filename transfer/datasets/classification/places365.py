"""Places365-standard, Zhou et al., PAMI 2018.

The labels of its test images are not public: test is the official val split, and val is a seeded
draw of 100 images per class from the training images. torchvision's class insists on the checksums
of the complete lists, which a small copy cannot have.
"""

from pathlib import Path

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import info, source
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.labeled import (
    Draw,
    PerClass,
    labeled_jpegs,
    write_file,
    write_lines,
)

TRAIN_FOLDERS = ("data_256_standard", "data_256", "data_large_standard", "data_large")
"""The 256-pixel version is preferred; the second name is what its archive unpacks to."""
VAL_FOLDERS = ("val_256", "val_large")


def read_places365(data: Path, split: str, sizes: Sizes) -> Images:
    """Read places365/categories_places365.txt, the lists beside it and the images they name."""
    folder = data / "places365"
    classes = [name for name, _ in _read_pairs(folder / "categories_places365.txt")]
    list_name, choices = (
        ("places365_val.txt", VAL_FOLDERS)
        if split == "test"
        else ("places365_train_standard.txt", TRAIN_FOLDERS)
    )
    prefix = f"places365/{_first_existing(folder, choices)}"
    pairs = _read_pairs(folder / list_name)
    names = [f"{prefix}/{name.lstrip('/')}" for name, _ in pairs]
    images = image_files(data, names, [label for _, label in pairs], classes)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _read_pairs(file: Path) -> list[tuple[str, int]]:
    """Return the lines of a file, each a name and a number."""
    with file.open() as lines:
        return [(name, int(number)) for name, number in (line.split() for line in lines)]


def _first_existing(folder: Path, choices: tuple[str, ...]) -> str:
    for name in choices:
        if (folder / name).is_dir():
            return name
    raise DataError(f"{folder}: none of the image folders {', '.join(choices)} is there")


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, the list of categories and the lists of files and labels."""
    folder = data / "places365"
    classes = ["/a/airfield", "/a/alley", "/b/bridge", "/c/castle", "/f/field/wild", "/s/street"]
    classes = classes[: per_class.classes]
    numbered = [f"{name} {label}" for label, name in enumerate(classes)]
    write_lines(folder / "categories_places365.txt", numbered)
    lines = []
    for label, name in enumerate(classes):
        for i in range(per_class.trainval):
            path = f"{name}/{i + 1:08d}.jpg"
            write_file(folder / "data_256_standard" / path.lstrip("/"), draw(label))
            lines.append(f"{path} {label}")
    write_lines(folder / "places365_train_standard.txt", lines)
    lines = []
    for i in range(per_class.test * per_class.classes):
        name = f"Places365_val_{i + 1:08d}.jpg"
        write_file(folder / "val_256" / name, draw(i * 7 % per_class.classes))
        lines.append(f"{name} {i * 7 % per_class.classes}")
    write_lines(folder / "places365_val.txt", lines)


SERVER = "http://data.csail.mit.edu/places/places365/"

DATASETS = {
    "places365": info(
        "places365",
        read=read_places365,
        small=labeled_jpegs(PerClass(classes=5), first_kind=8, write=_write_small),
        sources=(source("places365"),),
    ),
}
