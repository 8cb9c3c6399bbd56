"""SUN397, Xiao et al., CVPR 2010, the first of its ten published partitions.

torchvision reads the images but no partition. Each class has 50 training and 50 test images; a
seeded draw holds out 10 of the training images as val.
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


def read_sun397(data: Path, split: str, sizes: Sizes) -> Images:
    """Read SUN397/ClassName.txt, Training_01.txt, Testing_01.txt and the images they name."""
    folder = data / "SUN397"
    classes = folder.joinpath("ClassName.txt").read_text().split()
    label_of = {name: label for label, name in enumerate(classes)}
    partition = "Testing_01.txt" if split == "test" else "Training_01.txt"
    paths = folder.joinpath(partition).read_text().split()
    labels = [label_of[path.rpartition("/")[0]] for path in paths]
    images = image_files(data, [f"SUN397{path}" for path in paths], labels, classes)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, ClassName.txt, Training_01.txt and Testing_01.txt."""
    folder = data / "SUN397"
    classes = ["/a/abbey", "/a/apse/indoor", "/b/bakery/shop", "/c/canyon", "/d/diner/outdoor"]
    classes = classes[: per_class.classes]
    write_lines(folder / "ClassName.txt", classes)
    lists: dict[str, list[str]] = {"Training": [], "Testing": []}
    for label, name in enumerate(classes):
        for i in range(per_class.trainval + per_class.test):
            path = f"{name}/sun_a{chr(97 + i // 26)}{chr(97 + i % 26)}qdkwkdm.jpg"
            write_file(folder / path.lstrip("/"), draw(label))
            lists["Training" if i < per_class.trainval else "Testing"].append(path)
    for part, lines in lists.items():
        write_lines(folder / f"{part}_01.txt", lines)


DATASETS = {
    "sun397": info(
        "sun397",
        read=read_sun397,
        small=labeled_jpegs(PerClass(classes=5), first_kind=9, write=_write_small),
        sources=(source("sun397"),),
    ),
}
