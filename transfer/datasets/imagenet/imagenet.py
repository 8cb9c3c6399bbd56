"""ImageNet-1k (Russakovsky et al. 2015) and ImageNet-100, which reads the same folder.

The labels of the test images are not public: test is the official val split (50 images per class),
trainval is the official train split. val is a seeded draw of 50 images per class from trainval, on
which learning rates can be chosen; the probes use trainval and test only. No paper prints the
number of training images of ImageNet-100.
"""

from pathlib import Path

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.imagenet.classes import (
    SMALL_FIRST_KIND,
    SMALL_WNIDS,
    imagenet1k_wnids,
    imagenet100_wnids,
)
from transfer.datasets.imagenet.val_labels import KAGGLE_INNER, link_sorted, sort_val_images
from transfer.datasets.images import Images
from transfer.datasets.info import DatasetInfo, SmallVersion, split_counts
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.files import write_file
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs

SMALL = PerClass(classes=len(SMALL_WNIDS))


def read_in1k(data: Path, split: str, sizes: Sizes) -> Images:
    """Read imagenet/train/WNID/*.JPEG and imagenet/val/WNID/*.JPEG."""
    return _read(data, split, sizes, class_names(data / "imagenet" / "train"))


def read_in100(data: Path, split: str, sizes: Sizes) -> Images:
    """Read the classes of `imagenet100.txt` that are there, in alphabetical order."""
    present = set(class_names(data / "imagenet" / "train"))
    return _read(data, split, sizes, [w for w in sorted(imagenet100_wnids()) if w in present])


def _read(data: Path, split: str, sizes: Sizes, wnids: list[str]) -> Images:
    folder = data / "imagenet" / ("val" if split == "test" else "train")
    images = read_class_folders(data, folder, wnids)
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def small_train_file(wnid: str, i: int) -> str:
    """Return the file name of training image `i` of a class of the small ImageNet."""
    return f"{wnid}_{10 + 17 * i}.JPEG"


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write a folder per class below train/ and val/."""
    number = 0
    for label, wnid in enumerate(SMALL_WNIDS):
        for i in range(per_class.trainval):
            file = data / "imagenet" / "train" / wnid / small_train_file(wnid, i)
            write_file(file, draw(label))
        for _ in range(per_class.test):
            number += 1
            name = f"ILSVRC2012_val_{number:08d}.JPEG"
            write_file(data / "imagenet" / "val" / wnid / name, draw(label))


# names and MD5: torchvision 0.29 (imagenet.py); sizes: TensorFlow Datasets (imagenet2012.txt)
IMAGENET = Source(
    key="imagenet",
    folder="imagenet",
    archives=(
        Archive(
            name="ILSVRC2012_img_train.tar",
            num_bytes=147_897_477_120,
            checksum="md5:1d675b47d978889d74fa0da5fadfb00e",
            into="train",
            nested="*.tar",
        ),
        Archive(
            name="ILSVRC2012_img_val.tar",
            num_bytes=6_744_924_160,
            checksum="md5:29b22e2961454d5413ddabcf34fc5622",
            into="val",
        ),
        Archive(
            name="ILSVRC2012_devkit_t12.tar.gz",
            num_bytes=0,
            exact=False,
            checksum="md5:fa75699e90414af021442c21a62c3abf",
        ),
    ),
    # Kaggle's copy: names as `kaggle competitions download` writes them, without checksums
    variants=(
        (
            Archive(
                name="imagenet-object-localization-challenge.zip",
                num_bytes=0,
                exact=False,
                nested=f"{KAGGLE_INNER}.tar.gz",
            ),
        ),
        (
            Archive(name=f"{KAGGLE_INNER}.tar.gz", num_bytes=0, exact=False),
            Archive(name="LOC_val_solution.csv", num_bytes=0, exact=False),
        ),
    ),
    terms="non-commercial research and education",
    terms_url="https://image-net.org/download.php",
    parts=(
        Part(
            path="train",
            elsewhere=("Data/CLS-LOC/train", "ILSVRC/Data/CLS-LOC/train", "ILSVRC2012_img_train"),
            holds="n[0-9]*/*.JPEG",
        ),
        Part(
            path="val",
            elsewhere=(
                *("validation", "Data/CLS-LOC/val", "ILSVRC/Data/CLS-LOC/val"),
                "ILSVRC2012_img_val",
            ),
            holds="*[0-9]*",
        ),
    ),
    access="registration",
    advice="register at https://image-net.org/download.php and get the images of 2012, or Kaggle's "
    "copy, imagenet-object-localization-challenge.zip.",
    arrange=sort_val_images,
    link=link_sorted,
    checked_as=("in1k", "in100"),
)

DATASETS = {
    "in1k": DatasetInfo(
        title="ImageNet-1k",
        folder="imagenet",
        num_classes=1_000,
        metric="top1",
        counts=split_counts(1_231_167, 50_000, 50_000),
        read=read_in1k,
        known_classes=imagenet1k_wnids,
        how_to_get="Register at https://image-net.org/download.php, unpack "
        "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar to "
        "imagenet/{train,val}/WNID/*.JPEG (val images sorted into class folders).",
        small=labeled_jpegs(SMALL, first_kind=SMALL_FIRST_KIND, write=_write_small),
        sources=(IMAGENET,),
    ),
    "in100": DatasetInfo(
        title="ImageNet-100",
        folder="imagenet",
        num_classes=100,
        metric="top1",
        counts=split_counts(121_689, 5_000, 5_000),
        read=read_in100,
        known_classes=imagenet100_wnids,
        how_to_get="Get ImageNet-1k, or only the 100 classes of "
        "transfer/datasets/imagenet/imagenet100.txt, at imagenet/{train,val}/WNID/*.JPEG.",
        small=SmallVersion(sizes=PerClass(classes=len(SMALL_WNIDS) - 2).sizes, needs=("in1k",)),
        sources=(IMAGENET,),
    ),
}
