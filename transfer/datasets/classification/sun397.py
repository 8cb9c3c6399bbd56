"""SUN397, Xiao et al., CVPR 2010, the first of its ten published partitions.

torchvision reads the images but no partition. Each class has 50 training and 50 test images; a
seeded draw holds out 10 of the training images as val.
"""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.files import write_file, write_lines
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


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


# MD5: torchvision 0.29; the rest: TensorFlow Datasets. Both addresses end in status 404 since 2025
# (pytorch/vision#9348, KaiyangZhou/CoOp#90)
SOURCE = Source(
    key="sun397",
    folder="SUN397",
    archives=(
        Archive(
            name="SUN397.tar.gz",
            num_bytes=39_077_296_924,
            checksum="md5:8ca2778205c41d23104230ba66911c7a",
        ),
        Archive(
            name="Partitions.zip",
            num_bytes=18_293_705,
            checksum="sha256:e3311ea5f812d4cc6faef194688343d1111f6cd6f70f2c62f393c2b8d6ba1ec9",
            into="SUN397",
        ),
    ),
    terms="unknown",
    terms_url="https://vision.princeton.edu/projects/2010/SUN/",
    parts=(
        Part(path="a", holds="abbey"),
        *(
            Part(path=name, elsewhere=(f"Partitions/{name}", f"../{name}", f"../Partitions/{name}"))
            for name in ("ClassName.txt", "Training_01.txt", "Testing_01.txt")
        ),
    ),
    access="no home",
    advice="the publisher's addresses are dead. Mirrors that users name, with unknown content: "
    "https://opendatalab.com/OpenDataLab/SUN397 and "
    "https://huggingface.co/datasets/tanganke/sun397 (without the partition). The archives' "
    "checksums tell whether a copy is the published one.",
    checked_as=("sun397",),
)

DATASETS = {
    "sun397": DatasetInfo(
        title="SUN397",
        folder="SUN397",
        num_classes=397,
        metric="top1",
        counts=split_counts(15_880, 3_970, 19_850),
        read=read_sun397,
        how_to_get="The publisher's addresses are dead; unpack an own copy of SUN397.tar.gz into "
        "the data folder and Partitions.zip (ClassName.txt, Training_01.txt, Testing_01.txt) into "
        "SUN397/.",
        small=labeled_jpegs(PerClass(classes=5), first_kind=9, write=_write_small),
        sources=(SOURCE,),
    )
}
