"""Oxford 102 Flowers, Nilsback and Zisserman, ICVGIP 2008, with its published three splits.

torchvision's class insists on the checksums of the complete label files, which a small copy cannot
have.
"""

from pathlib import Path

from scipy.io import loadmat
from torchvision.datasets import Flowers102

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files

FIELDS = {
    "train": ("trnid",),
    "val": ("valid",),
    "trainval": ("trnid", "valid"),
    "test": ("tstid",),
}


def read_flowers(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads flowers-102/setid.mat, imagelabels.mat and jpg/image_00001.jpg."""
    folder = data / "flowers-102"
    set_ids = loadmat(folder / "setid.mat")
    class_ids = loadmat(folder / "imagelabels.mat")["labels"].ravel()
    numbers = [int(number) for field in FIELDS[split] for number in set_ids[field].ravel()]
    names = [f"flowers-102/jpg/image_{number:05d}.jpg" for number in numbers]
    labels = [int(class_ids[number - 1]) - 1 for number in numbers]
    return image_files(data, names, labels, Flowers102.classes[: sizes.classes])
