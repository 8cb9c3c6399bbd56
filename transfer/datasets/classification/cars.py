"""Stanford Cars, Krause et al. 2013. val is drawn from all training images alike."""

from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.mat_files import read_mat
from transfer.datasets.source import Archive, Part, Source
from transfer.datasets.splits import uniform_split
from transfer.datasets.synthetic.files import write_file
from transfer.datasets.synthetic.labeled import Draw, PerClass, labeled_jpegs


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


# SHA-256 and sizes: TensorFlow Datasets (cars196.txt), whose addresses are dead
SOURCE = Source(
    key="cars",
    folder="stanford_cars",
    archives=(
        Archive(
            name="cars_train.tgz",
            num_bytes=979_269_282,
            checksum="sha256:512b227b30e2f0a8aab9e09485786ab4479582073a144998da74d64b801fd288",
        ),
        Archive(
            name="cars_test.tgz",
            num_bytes=977_350_468,
            checksum="sha256:bffea656d6f425cba3c91c6d83336e4c5f86c6cffd8975b0f375d3a10da8e243",
        ),
        Archive(
            name="car_devkit.tgz",
            num_bytes=330_960,
            checksum="sha256:b97deb463af7d58b6bfaa18b2a4de9829f0f79e8ce663dfa9261bf7810e9accd",
        ),
        Archive(
            name="cars_test_annos_withlabels.mat",
            num_bytes=185_758,
            checksum="sha256:790f75be8ea34eeded134cc559332baf23e30e91367e9ddca97d26ed9b895f05",
        ),
    ),
    terms="unknown, the publisher's page is gone",
    terms_url="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    parts=(
        Part(path="cars_train", elsewhere=("cars_train/cars_train",), holds="*.jpg"),
        Part(path="cars_test", elsewhere=("cars_test/cars_test",), holds="*.jpg"),
        Part(path="devkit", elsewhere=("car_devkit/devkit",), holds="cars_train_annos.mat"),
        Part(
            path="cars_test_annos_withlabels.mat",
            elsewhere=("devkit/cars_test_annos_withlabels.mat",),
        ),
    ),
    access="no home",
    advice="the publisher's addresses are dead (pytorch/vision#7545). Users name mirrors, whose "
    "content is unknown: https://www.kaggle.com/datasets/jessicali9530/stanford-cars-dataset "
    "(images), https://github.com/pytorch/vision/files/11644847/car_devkit.tgz, and "
    "https://www.kaggle.com/datasets/abdelrahmant11/standford-cars-dataset-meta (devkit and test "
    "labels; rename `cars_test_annos_withlabels (1).mat`). Unpacked, they are linked by --link.",
    checked_as=("cars",),
)

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
        sources=(SOURCE,),
    )
}
