"""Food-101, Bossard et al., ECCV 2014. val is drawn per class from the training images."""

import json
from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files, names_below
from transfer.datasets.info import info, source
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.labeled import (
    Draw,
    PerClass,
    labeled_jpegs,
    write_file,
    write_lines,
)


def read_food(data: Path, split: str, sizes: Sizes) -> Images:
    """Read food-101/meta/{train,test}.json and food-101/images."""
    from torchvision.datasets import Food101

    part = Food101(data, split="test" if split == "test" else "train")
    images = image_files(data, names_below(data, part._image_files), part._labels, part.classes)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/, and meta/ with train.json and test.json."""
    folder = data / "food-101"
    classes = ["apple_pie", "beignets", "churros", "donuts", "edamame", "gyoza", "hot_dog", "ramen"]
    classes = classes[: per_class.classes]
    for split, num_images, first in (
        ("train", per_class.trainval, 1_000),
        ("test", per_class.test, 9_000),
    ):
        paths = {name: [f"{name}/{first + 13 * i}" for i in range(num_images)] for name in classes}
        for label, name in enumerate(classes):
            for path in paths[name]:
                write_file(folder / "images" / f"{path}.jpg", draw(label))
        write_file(folder / "meta" / f"{split}.json", json.dumps(paths).encode())
        all_paths = [path for name in classes for path in paths[name]]
        write_lines(folder / "meta" / f"{split}.txt", all_paths)
    write_lines(folder / "meta" / "classes.txt", classes)
    titles = [name.replace("_", " ").capitalize() for name in classes]
    write_lines(folder / "meta" / "labels.txt", titles)


DATASETS = {
    "food": info(
        "food",
        read=read_food,
        small=labeled_jpegs(PerClass(classes=5), first_kind=6, write=_write_small),
        sources=(source("food"),),
    ),
}
