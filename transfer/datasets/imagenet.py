"""ImageNet-1k (Russakovsky et al. 2015) and ImageNet-100, which reads the same folder.

The labels of the test images are not public: test is the official val split (50 images per class),
trainval the official train split. val is a seeded draw of 50 images per class from it, for those
who choose a rate; the probes use trainval and test only.
"""

from pathlib import Path

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images
from transfer.datasets.splits import balanced_split

IMAGENET100 = Path(__file__).with_name("imagenet100.txt")
"""The classes of CMC (Tian et al. 2020), used by JCL, LORAC, UniCLR and LooC."""


def imagenet100_wnids() -> list[str]:
    """The 100 class folders of ImageNet-100, in the published order."""
    return IMAGENET100.read_text().split()


def read_in1k(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads imagenet/train/WNID/*.JPEG and imagenet/val/WNID/*.JPEG."""
    return _read(data, split, sizes, class_names(data / "imagenet" / "train"))


def read_in100(data: Path, split: str, sizes: Sizes) -> Images:
    """The classes of `imagenet100.txt` that are there, in alphabetical order."""
    present = class_names(data / "imagenet" / "train")
    listed = sorted(imagenet100_wnids())
    return _read(data, split, sizes, [wnid for wnid in listed if wnid in set(present)])


def _read(data: Path, split: str, sizes: Sizes, wnids: list[str]) -> Images:
    folder = data / "imagenet" / ("val" if split == "test" else "train")
    images = read_class_folders(data, folder, wnids)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))
