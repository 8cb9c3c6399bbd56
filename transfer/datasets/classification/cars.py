"""Stanford Cars, Krause et al. 2013. val is drawn from all training images alike."""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import info, source
from transfer.datasets.mat_files import read_mat
from transfer.datasets.splits import uniform_split
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs, write_file


def read_cars(data: Path, split: str, sizes: Sizes) -> Images:
    """Read stanford_cars/devkit, cars_train and cars_test."""
    folder = data / "stanford_cars"
    lists = {"test": "cars_test_annos_withlabels.mat"}
    part = "cars_test" if split == "test" else "cars_train"
    list_file = folder / lists.get(split, "devkit/cars_train_annos.mat")
    (rows,) = read_mat(list_file, "annotations", squeeze_me=True)
    names = [f"stanford_cars/{part}/{row['fname']}" for row in rows]
    labels = [int(row["class"]) - 1 for row in rows]
    (classes,) = read_mat(folder / "devkit" / "cars_meta.mat", "class_names", squeeze_me=True)
    images = image_files(data, names, labels, classes.tolist())
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
    "cars": info(
        "cars",
        read=read_cars,
        small=labeled_jpegs(PerClass(classes=6), first_kind=3, write=_write_small),
        sources=(source("cars"),),
    ),
}
