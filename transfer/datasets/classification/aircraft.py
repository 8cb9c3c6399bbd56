"""FGVC-Aircraft, Maji et al. 2013, by variant, with its published splits."""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files, names_below
from transfer.datasets.info import info, source
from transfer.datasets.synthetic.labeled import (
    Draw,
    PerClass,
    labeled_jpegs,
    write_file,
    write_lines,
)


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


DATASETS = {
    "aircraft": info(
        "aircraft",
        read=read_aircraft,
        small=labeled_jpegs(
            PerClass(classes=5, train=16, val=16), first_kind=0, write=_write_small
        ),
        sources=(source("aircraft"),),
    ),
}
