"""Excerpts of real images in the folders of the data sets, as links to the images."""

from pathlib import Path

from transfer.datasets.class_folders import class_names
from transfer.datasets.expected import Sizes, mark_small

CIFAR10_PER_CLASS = {"train": 1000, "test": 200}
"""Images of each class; those of results/README.md."""
CIFAR10_VAL = 100
"""Images of each class that are held out from train as val."""


def link_cifar10(source: Path, data: Path) -> None:
    """Link the first images of {train,test}/CLASS below `source` as an excerpt of CIFAR-10."""
    classes = class_names(source / "train")
    for split, count in CIFAR10_PER_CLASS.items():
        for name in classes:
            files = sorted((source / split / name).iterdir())[:count]
            _link(files, data / "cifar10" / split / name)
    trainval, test = (len(classes) * count for count in CIFAR10_PER_CLASS.values())
    val = len(classes) * CIFAR10_VAL
    counts = {"train": trainval - val, "val": val, "trainval": trainval, "test": test}
    mark_small(data, "cifar10", Sizes(classes=len(classes), counts=counts))


def link_photographs(source: Path, data: Path) -> None:
    """Link the photographs of each folder WNID below `source` as train and as test of ImageNet-1k.

    Both splits hold the same images: the excerpt is for speed, not for accuracy.
    """
    classes = class_names(source)
    count = 0
    for name in classes:
        files = sorted((source / name).iterdir())
        count += len(files)
        for split in ("train", "val"):
            _link(files, data / "imagenet" / split / name)
    counts = {"train": count, "val": 0, "trainval": count, "test": count}
    mark_small(data, "in1k", Sizes(classes=len(classes), counts=counts))


def _link(files: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in files:
        (folder / file.name).symlink_to(file.absolute())
