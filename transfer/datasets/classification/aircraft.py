"""FGVC-Aircraft, Maji et al. 2013, by variant, with its published splits."""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files, names_below
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.synthetic.files import write_file, write_lines
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


def read_aircraft(data: Path, split: str, sizes: Sizes) -> Images:
    """Read fgvc-aircraft-2013b/data."""
    from torchvision.datasets import FGVCAircraft

    part = FGVCAircraft(data, split=split, annotation_level="variant")
    return image_files(data, names_below(data, part._image_files), part._labels, part.classes)


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/ and one list of variants per split."""
    folder = data / "fgvc-aircraft-2013b" / "data"
    variants = ["707-320", "A300B4", "Boeing 717", "C-130", "DC-3", "Spitfire", "Yak-42", "Tu-134"]
    variants = variants[: per_class.classes]
    write_lines(folder / "variants.txt", variants)
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    number = 1_000_000
    for label, variant in enumerate(variants):
        for split, lines in lists.items():
            for _ in range(getattr(per_class, split)):
                number += 7
                write_file(folder / "images" / f"{number}.jpg", draw(label))
                lines.append(f"{number} {variant}")
    lists["trainval"] = lists["train"] + lists["val"]
    for split, lines in lists.items():
        write_lines(folder / f"images_variant_{split}.txt", sorted(lines))


# address: torchvision 0.29; MD5: publisher's, as in metrix and R torchvision; size: server's answer
SOURCE = Source(
    key="aircraft",
    folder="fgvc-aircraft-2013b",
    archives=(
        Archive(
            name="fgvc-aircraft-2013b.tar.gz",
            urls=(
                "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/"
                "fgvc-aircraft-2013b.tar.gz",
            ),
            num_bytes=2_753_340_328,
            checksum="md5:d4acdd33327262359767eeaa97a4f732",
        ),
    ),
    terms="non-commercial research only",
    terms_url="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
    parts=(
        Part(path="data/images", holds="*.jpg"),
        Part(path="data/variants.txt"),
        *(Part(path=f"data/images_variant_{s}.txt") for s in ("train", "val", "trainval", "test")),
    ),
    checked_as=("aircraft",),
)

DATASETS = {
    "aircraft": DatasetInfo(
        title="FGVC-Aircraft",
        folder="fgvc-aircraft-2013b",
        num_classes=100,
        metric="mean_per_class",
        counts=split_counts(3_334, 3_333, 3_333),
        read=read_aircraft,
        how_to_get="Unpack fgvc-aircraft-2013b.tar.gz from "
        "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/ into the data folder.",
        small=labeled_jpegs(
            PerClass(classes=5, train=16, val=16), first_kind=0, write=_write_small
        ),
        sources=(SOURCE,),
    )
}
