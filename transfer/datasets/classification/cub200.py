"""CUB-200-2011, Wah et al. 2011, with its published train and test images.

val is a seeded draw of the same number of images from each class.
"""

from pathlib import Path

from transfer.datasets.expected import Sizes
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


def read_cub200(data: Path, split: str, sizes: Sizes) -> Images:
    """Read CUB_200_2011/{images, image_class_labels, train_test_split, classes}.txt, images/."""
    folder = data / "CUB_200_2011"
    files = _read_pairs(folder / "images.txt")
    classes = _read_pairs(folder / "classes.txt")
    label_of = {number: label for label, number in enumerate(classes)}
    class_of = _read_pairs(folder / "image_class_labels.txt")
    is_train = _read_pairs(folder / "train_test_split.txt")
    mark = "0" if split == "test" else "1"
    numbers = [number for number in files if is_train[number] == mark]
    names = [f"CUB_200_2011/images/{files[number]}" for number in numbers]
    labels = [label_of[class_of[number]] for number in numbers]
    images = image_files(data, names, labels, list(classes.values()))
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _read_pairs(file: Path) -> dict[str, str]:
    """Return the lines of a file, each a number and a word."""
    with file.open() as lines:
        return dict(line.split() for line in lines)


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images and the four lists."""
    folder = data / "CUB_200_2011"
    species = ["Black_footed_Albatross", "Laysan_Albatross", "Crested_Auklet", "Brewer_Blackbird"]
    species += ["Bobolink", "Indigo_Bunting", "Cardinal", "Spotted_Catbird"]
    classes = [f"{i:03d}.{name}" for i, name in enumerate(species[: per_class.classes], start=1)]
    lists: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    number = 0
    for label, name in enumerate(classes):
        for i in range(per_class.trainval + per_class.test):
            number += 1
            file = f"{name}/{name[4:]}_{i:04d}_{796_000 + number}.jpg"
            write_file(folder / "images" / file, draw(label))
            lists["images"].append(f"{number} {file}")
            lists["image_class_labels"].append(f"{number} {label + 1}")
            lists["train_test_split"].append(f"{number} {int(i >= per_class.test)}")
    lists["classes"] = [f"{i} {name}" for i, name in enumerate(classes, start=1)]
    for name, lines in lists.items():
        write_lines(folder / f"{name}.txt", lines)


DATASETS = {
    "cub200": info(
        "cub200",
        read=read_cub200,
        small=labeled_jpegs(PerClass(classes=6), first_kind=16, write=_write_small),
        sources=(source("cub200"),),
    ),
}
