"""Oxford-IIIT Pets, Parkhi et al., CVPR 2012. val is drawn per class from trainval."""

from pathlib import Path

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import info, source
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.labeled import (
    Draw,
    PerClass,
    labeled_jpegs,
    write_file,
    write_lines,
)


def read_pets(data: Path, split: str, sizes: Sizes) -> Images:
    """Read oxford-iiit-pet/annotations/{trainval,test}.txt and oxford-iiit-pet/images."""
    folder = data / "oxford-iiit-pet"
    file = folder / "annotations" / ("test.txt" if split == "test" else "trainval.txt")
    names, labels, breeds = [], [], {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            image_id, label, _, _ = line.split()  # then species, and the breed within the species
            labels.append(int(label) - 1)
        except ValueError as error:
            raise DataError(
                f"{file}, line {number}: {line[:80]!r}, expected NAME CLASS SPECIES BREED"
            ) from error
        names.append(f"oxford-iiit-pet/images/{image_id}.jpg")
        breeds[labels[-1]] = image_id.rpartition("_")[0].replace("_", " ").title()
    images = image_files(data, names, labels, [breeds[label] for label in sorted(breeds)])
    if split == "test":
        return images
    return balanced_split(images, split, val_per_class=sizes.per_class("val"))


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/, and annotations/ with trainval.txt and test.txt."""
    folder = data / "oxford-iiit-pet"
    # the published numbering follows the alphabet without regard to case; cats have capitals
    breeds = ["Abyssinian", "american_bulldog", "beagle", "Bengal", "boxer", "havanese", "Persian"]
    breeds = breeds[: per_class.classes]
    for split, num_images, first in (
        ("trainval", per_class.trainval, 1),
        ("test", per_class.test, 101),
    ):
        lines = []
        for label, breed in enumerate(breeds):
            species = 1 if breed[0].isupper() else 2
            for i in range(first, first + num_images):
                write_file(folder / "images" / f"{breed}_{i}.jpg", draw(label))
                lines.append(f"{breed}_{i} {label + 1} {species} 1")
        write_lines(folder / "annotations" / f"{split}.txt", lines)


SERVERS = (
    "https://www.robots.ox.ac.uk/~vgg/data/pets/data/",
    "https://thor.robots.ox.ac.uk/~vgg/data/pets/",
)

DATASETS = {
    "pets": info(
        "pets",
        read=read_pets,
        small=labeled_jpegs(PerClass(classes=6), first_kind=7, write=_write_small),
        sources=(source("pets"),),
    ),
}
