"""Describable Textures, Cimpoi et al., CVPR 2014, the first of the ten published partitions."""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files, names_below
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.synthetic.files import write_file, write_lines
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


def read_dtd(data: Path, split: str, sizes: Sizes) -> Images:
    """Read dtd/dtd/labels/{train1,val1,test1}.txt and dtd/dtd/images."""
    from torchvision.datasets import DTD

    splits = ("train", "val") if split == "trainval" else (split,)
    parts = [DTD(data, split=name, partition=1) for name in splits]
    names = names_below(data, [file for part in parts for file in part._image_files])
    return image_files(data, names, [y for part in parts for y in part._labels], parts[0].classes)


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/, and labels/ with the three lists of the first partition."""
    folder = data / "dtd" / "dtd"
    classes = ["banded", "blotchy", "bubbly", "cracked", "dotted", "fibrous", "gauzy", "knitted"]
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for label, name in enumerate(classes[: per_class.classes]):
        number = 0
        for split, lines in lists.items():
            for _ in range(getattr(per_class, split)):
                number += 1
                lines.append(f"{name}/{name}_{number:04d}.jpg")
                write_file(folder / "images" / lines[-1], draw(label))
    for split, lines in lists.items():
        write_lines(folder / "labels" / f"{split}1.txt", lines)


# address and MD5: torchvision 0.29 (dtd.py); size: TensorFlow Datasets (dtd.txt)
SOURCE = Source(
    key="dtd",
    folder="dtd",
    archives=(
        Archive(
            name="dtd-r1.0.1.tar.gz",
            urls=("https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",),
            num_bytes=625_239_812,
            checksum="md5:fff73e5086ae6bdbea199a49dfb8a4c1",
        ),
    ),
    terms='"made available to the computer vision community for research purposes"',
    terms_url="https://www.robots.ox.ac.uk/~vgg/data/dtd/",
    parts=(
        Part(path="dtd/images", elsewhere=("images",), holds="banded"),
        Part(path="dtd/labels", elsewhere=("labels",), holds="train1.txt"),
    ),
    checked_as=("dtd",),
)

DATASETS = {
    "dtd": DatasetInfo(
        title="Describable Textures",
        folder="dtd",
        num_classes=47,
        metric="top1",
        counts=split_counts(1_880, 1_880, 1_880),
        read=read_dtd,
        how_to_get="Unpack dtd-r1.0.1.tar.gz from https://www.robots.ox.ac.uk/~vgg/data/dtd/ "
        "into dtd/, so that dtd/dtd/images exists.",
        small=labeled_jpegs(
            PerClass(classes=5, train=16, val=16), first_kind=4, write=_write_small
        ),
        sources=(SOURCE,),
    )
}
