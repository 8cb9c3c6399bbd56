"""Oxford-IIIT Pets, Parkhi et al., CVPR 2012. val is drawn per class from trainval."""

from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files, names_below
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.splits import balanced_split
from transfer.datasets.synthetic.files import write_file, write_lines
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


def read_pets(data: Path, split: str, sizes: Sizes) -> Images:
    """Read oxford-iiit-pet/annotations/{trainval,test}.txt and oxford-iiit-pet/images."""
    from torchvision.datasets import OxfordIIITPet

    part = OxfordIIITPet(data, split="test" if split == "test" else "trainval")
    images = image_files(data, names_below(data, part._images), part._labels, part.classes)
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


DATASETS = {
    "pets": DatasetInfo(
        title="Oxford-IIIT Pets",
        folder="oxford-iiit-pet",
        num_classes=37,
        metric="mean_per_class",
        counts=split_counts(2_940, 740, 3_669),
        read=read_pets,
        how_to_get="Unpack images.tar.gz and annotations.tar.gz from "
        "https://www.robots.ox.ac.uk/~vgg/data/pets/ into oxford-iiit-pet/.",
        small=labeled_jpegs(PerClass(classes=6), first_kind=7, write=_write_small),
    )
}
