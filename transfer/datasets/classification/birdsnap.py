"""Birdsnap, Berg et al., CVPR 2014.

The publishers give links to photographs. Many of them are dead by now, so everybody has another
subset; the counts below are those of the subset that LORAC (Wang et al., arXiv:2108.02696) could
still download. As there, 5 images per class are drawn as val, 5 more as test, and the rest is
train; the draws are seeded and use the images that exist.
"""

from pathlib import Path

import numpy as np

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.source import Part, Source
from transfer.datasets.splits import balanced_split, ranks_in_class
from transfer.datasets.synthetic.files import write_file, write_lines
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


def read_birdsnap(data: Path, split: str, sizes: Sizes) -> Images:
    """Read birdsnap/images/SPECIES/*.jpg."""
    folder = data / "birdsnap" / "images"
    images = read_class_folders(data, folder, class_names(folder))
    in_test = ranks_in_class(images) < sizes.per_class("test")
    if split == "test":
        return images.subset(np.flatnonzero(in_test))
    trainval = images.subset(np.flatnonzero(~in_test))
    return balanced_split(trainval, split, val_per_class=sizes.per_class("val"))


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write a folder per species, and species.txt."""
    folder = data / "birdsnap"
    species = ["Acadian Flycatcher", "Blue Jay", "Dunlin", "Gadwall", "Killdeer", "Osprey", "Sora"]
    species = species[: per_class.classes]
    directories = [name.replace(" ", "_") for name in species]
    numbered = enumerate(zip(species, directories, strict=True), start=1)
    lines = [f"{i}\t{name}\t{name}\t{directory}" for i, (name, directory) in numbered]
    write_lines(folder / "species.txt", ["id\tcommon\tscientific\tdir", *lines])
    for label, directory in enumerate(directories):
        for i in range(per_class.trainval + per_class.test):
            write_file(folder / "images" / directory / f"{430_000 + 31 * i}.jpg", draw(label))


SOURCE = Source(
    key="birdsnap",
    folder="birdsnap",
    archives=(),
    terms="of each photographer",
    terms_url="http://thomasberg.org/",
    parts=(Part(path="images", holds="*/*.jpg"), Part(path="species.txt")),
    access="no home",
    advice="run get_birdsnap.py of http://thomasberg.org/datasets/birdsnap/1.1/birdsnap.tgz, which "
    "downloads the photographs that still exist to images/SPECIES/*.jpg beside species.txt. Then: "
    "get-data birdsnap --link FOLDER, with --tolerate for what is missing: LORAC counted 40,447 "
    "images, the copy https://huggingface.co/datasets/sasha/birdsnap has 39,860.",
    checked_as=("birdsnap",),
)

DATASETS = {
    "birdsnap": DatasetInfo(
        title="Birdsnap",
        folder="birdsnap",
        num_classes=500,
        metric="top1",
        counts=split_counts(35_447, 2_500, 2_500),
        read=read_birdsnap,
        how_to_get="Run get_birdsnap.py of birdsnap.tgz "
        "(http://thomasberg.org/datasets/birdsnap/1.1/birdsnap.tgz) and put what it "
        "downloads at birdsnap/images/SPECIES/*.jpg; dead links change the counts.",
        small=labeled_jpegs(PerClass(classes=6), first_kind=1, write=_write_small),
        sources=(SOURCE,),
    )
}
