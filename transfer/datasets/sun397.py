"""SUN397, Xiao et al., CVPR 2010, the first of its ten published partitions.

torchvision reads the images but no partition. 50 images per class train and 50 test; 10 of the
former are held out as val by a seeded draw.
"""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.splits import balanced_split


def read_sun397(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads SUN397/ClassName.txt, Training_01.txt, Testing_01.txt and the images they name."""
    folder = data / "SUN397"
    classes = folder.joinpath("ClassName.txt").read_text().split()
    label_of = {name: label for label, name in enumerate(classes)}
    listing = "Testing_01.txt" if split == "test" else "Training_01.txt"
    paths = folder.joinpath(listing).read_text().split()
    labels = [label_of[path.rpartition("/")[0]] for path in paths]
    images = image_files(data, [f"SUN397{path}" for path in paths], labels, classes)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))
