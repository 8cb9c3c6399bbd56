"""The sets that torchvision reads as published: Aircraft, Cars, DTD, Food-101, Pets.

Its classes give the file names and labels; decoding, messages and missing val splits are ours.
Where the publishers name no val split, a seeded draw of the usual size is held out.
"""

from collections.abc import Sequence
from pathlib import Path

from torchvision.datasets import DTD, FGVCAircraft, Food101, OxfordIIITPet, StanfordCars

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.splits import balanced_split, plain_split


def read_aircraft(data: Path, split: str, sizes: Sizes) -> Images:
    """FGVC-Aircraft, Maji et al. 2013, by variant, published splits."""
    part = FGVCAircraft(data, split=split, annotation_level="variant")
    return _images(data, part._image_files, part._labels, part.classes)


def read_cars(data: Path, split: str, sizes: Sizes) -> Images:
    """Stanford Cars, Krause et al. 2013; val is drawn from all training images alike."""
    part = StanfordCars(data, split="test" if split == "test" else "train")
    files = [file for file, _ in part._samples]
    images = _images(data, files, [int(label) for _, label in part._samples], part.classes)
    return images if split == "test" else plain_split(images, split, num_val=sizes.counts["val"])


def read_dtd(data: Path, split: str, sizes: Sizes) -> Images:
    """Describable Textures, Cimpoi et al., CVPR 2014, the first of the ten published partitions."""
    names = ("train", "val") if split == "trainval" else (split,)
    parts = [DTD(data, split=name, partition=1) for name in names]
    files = [file for part in parts for file in part._image_files]
    return _images(data, files, [y for part in parts for y in part._labels], parts[0].classes)


def read_food(data: Path, split: str, sizes: Sizes) -> Images:
    """Food-101, Bossard et al., ECCV 2014; val is drawn per class from the training images."""
    part = Food101(data, split="test" if split == "test" else "train")
    images = _images(data, part._image_files, part._labels, part.classes)
    return _with_balanced_val(images, split, sizes)


def read_pets(data: Path, split: str, sizes: Sizes) -> Images:
    """Oxford-IIIT Pets, Parkhi et al., CVPR 2012; val is drawn per class from trainval."""
    part = OxfordIIITPet(data, split="test" if split == "test" else "trainval")
    images = _images(data, part._images, part._labels, part.classes)
    return _with_balanced_val(images, split, sizes)


def _with_balanced_val(images: Images, split: str, sizes: Sizes) -> Images:
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _images(
    data: Path, files: Sequence[Path | str], labels: Sequence[int], classes: Sequence[str]
) -> Images:
    names = [Path(file).relative_to(data).as_posix() for file in files]
    return image_files(data, names, labels, classes)
