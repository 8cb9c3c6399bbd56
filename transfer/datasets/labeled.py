"""Readers of datasets with one label per image, in their published layouts.

Each reader's docstring says where the splits come from. Everything else is in facts.yaml.
synthetic/labeled.py writes the small versions. CIFAR is stored as arrays: see cifar.py.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from transfer.datasets.expected import SMALL_DATA, DataError, Sizes
from transfer.datasets.images import (
    ImageFiles,
    Images,
    class_names,
    image_files,
    read_class_folders,
    read_mat,
)
from transfer.datasets.info import info, source
from transfer.datasets.lists import read_json, read_list, read_names
from transfer.datasets.splits import draw_from_each_class, seeded_ranks, uniform_split, with_val
from transfer.datasets.synthetic import labeled as small
from transfer.datasets.synthetic.labeled import Files, PerClass, labeled_jpegs

Read = Callable[[Path, str, Sizes], Images]


def read_aircraft(data: Path, split: str, sizes: Sizes) -> Images:
    """FGVC-Aircraft, Maji et al. 2013, by variant, with its published splits.

    Read fgvc-aircraft-2013b/data.
    """
    folder = data / "fgvc-aircraft-2013b" / "data"
    variants = read_list(folder / "variants.txt", {"variant": str}, joined=True)
    label_of = {variant: label for label, (variant,) in enumerate(variants)}
    listing = folder / f"images_variant_{split}.txt"
    rows = read_list(listing, {"image": str, "variant": str}, joined=True)
    names = [f"fgvc-aircraft-2013b/data/images/{image}.jpg" for image, _ in rows]
    return image_files(data, names, [label_of[variant] for _, variant in rows], list(label_of))


def read_birdsnap(data: Path, split: str, sizes: Sizes) -> Images:
    """Birdsnap, Berg et al., CVPR 2014.

    The publishers provide image URLs. Many are dead by now, so each download is a different
    subset. The counts in facts.yaml describe the subset of LORAC (Wang et al., arXiv:2108.02696).
    As in LORAC, 5 images per class are drawn as val, 5 more as test, and the others are train.
    The draws are seeded and use the existing images.

    Read birdsnap/images/SPECIES/*.jpg.
    """
    folder = data / "birdsnap" / "images"
    images = read_class_folders(data, folder, class_names(folder))
    in_test = draw_from_each_class(images, sizes.held_out("test") // sizes.classes)
    in_split = in_test if split == "test" else ~in_test
    return with_val(images.subset(np.flatnonzero(in_split)), split, sizes)


def read_caltech101(data: Path, split: str, sizes: Sizes) -> Images:
    """Caltech-101, Fei-Fei et al., CVPR 2004 workshop.

    There is no official split. Usually, 30 images per class are used for training and the others
    for testing. The papers' 3,060 and 6,084 images include the background folder as a class, so
    there are 102 classes here. 5 of the 30 images are held out as val. Both draws are seeded.

    Read caltech101/101_ObjectCategories/CLASS/image_0001.jpg.
    """
    folder = data / "caltech101" / "101_ObjectCategories"
    images = read_class_folders(data, folder, class_names(folder))
    in_trainval = draw_from_each_class(images, sizes.held_out("trainval") // sizes.classes)
    in_split = ~in_trainval if split == "test" else in_trainval
    return with_val(images.subset(np.flatnonzero(in_split)), split, sizes)


def read_cars(data: Path, split: str, sizes: Sizes) -> Images:
    """Stanford Cars, Krause et al. 2013.

    val is drawn uniformly from the training images.

    Read stanford_cars/devkit, cars_train and cars_test.
    """
    folder = data / "stanford_cars"
    folder_name, listing = "cars_train", "devkit/cars_train_annos.mat"
    if split == "test":
        folder_name, listing = "cars_test", "cars_test_annos_withlabels.mat"
    (rows,) = read_mat(folder / listing, "annotations", squeeze_me=True)
    names = [f"stanford_cars/{folder_name}/{row['fname']}" for row in rows]
    labels = [int(row["class"]) - 1 for row in rows]
    (classes,) = read_mat(folder / "devkit" / "cars_meta.mat", "class_names", squeeze_me=True)
    return uniform_split(image_files(data, names, labels, classes.tolist()), split, sizes)


def read_cub200(data: Path, split: str, sizes: Sizes) -> Images:
    """CUB-200-2011, Wah et al. 2011, with its published train and test images.

    val is a seeded draw of the same number of images from each class.

    Read CUB_200_2011/{images, image_class_labels, train_test_split, classes}.txt, images/.
    """
    folder = data / "CUB_200_2011"
    files = dict(read_list(folder / "images.txt", {"number": int, "image": str}))
    classes = dict(read_list(folder / "classes.txt", {"number": int, "class": str}))
    class_of = dict(read_list(folder / "image_class_labels.txt", {"number": int, "class": int}))
    is_train = dict(read_list(folder / "train_test_split.txt", {"number": int, "is_train": int}))
    label_of = {number: label for label, number in enumerate(classes)}
    mark = 0 if split == "test" else 1
    numbers = [number for number in files if is_train[number] == mark]
    names = [f"CUB_200_2011/images/{files[number]}" for number in numbers]
    labels = [label_of[class_of[number]] for number in numbers]
    images = image_files(data, names, labels, list(classes.values()))
    return with_val(images, split, sizes)


def read_dtd(data: Path, split: str, sizes: Sizes) -> Images:
    """Describable Textures (DTD), Cimpoi et al., CVPR 2014, first published partition.

    Read dtd/dtd/labels/{train1,val1,test1}.txt and dtd/dtd/images.
    """
    folder = data / "dtd" / "dtd" / "labels"
    lists = {s: read_names(folder / f"{s}1.txt") for s in ("train", "val", "test")}
    # collected from all lists, since a split of an excerpt may lack some classes
    classes = sorted({file.partition("/")[0] for files in lists.values() for file in files})
    files = lists["train"] + lists["val"] if split == "trainval" else lists[split]
    labels = [classes.index(file.partition("/")[0]) for file in files]
    return image_files(data, [f"dtd/dtd/images/{file}" for file in files], labels, classes)


FIELDS = {"train": ["trnid"], "val": ["valid"], "trainval": ["trnid", "valid"], "test": ["tstid"]}
"""Fields of setid.mat with the image numbers of each split."""


def read_flowers(data: Path, split: str, sizes: Sizes) -> Images:
    """Oxford 102 Flowers, Nilsback and Zisserman, ICVGIP 2008, with its published splits.

    torchvision's class is not used, since it requires the checksums of the complete label files.

    Read flowers-102/setid.mat, imagelabels.mat and jpg/image_00001.jpg.
    """
    folder = data / "flowers-102"
    (class_ids,) = read_mat(folder / "imagelabels.mat", "labels", squeeze_me=True)
    arrays = read_mat(folder / "setid.mat", *FIELDS[split])
    numbers = [int(number) for array in arrays for number in array.ravel()]
    names = [f"flowers-102/jpg/image_{number:05d}.jpg" for number in numbers]
    labels = [int(class_ids[number - 1]) - 1 for number in numbers]
    # torchvision has these names since 0.22
    classes = Path(__file__).with_name("flowers102.txt").read_text("utf-8").splitlines()
    return image_files(data, names, labels, classes[: class_ids.max()])


def read_food(data: Path, split: str, sizes: Sizes) -> Images:
    """Food-101, Bossard et al., ECCV 2014.

    val is drawn per class from the training images.

    Read food-101/meta/{train,test}.json and food-101/images.
    """
    meta = data / "food-101" / "meta"
    train, test = (read_json(meta / f"{name}.json") for name in ("train", "test"))
    # collected from both files, since one of an excerpt may lack some classes
    classes = sorted({*train, *test})
    pairs = [
        (c, file) for c, files in (test if split == "test" else train).items() for file in files
    ]
    names = [f"food-101/images/{file}.jpg" for _, file in pairs]
    images = image_files(data, names, [classes.index(c) for c, _ in pairs], classes)
    return with_val(images, split, sizes)


RESPLIT_SEED = "looc re-split 0"


def read_inat1k(data: Path, split: str, sizes: Sizes) -> Images:
    """iNaturalist 2019 (1,010 species) with LooC's test set (arXiv:2008.05659, appendix B).

    The published val split is small. LooC tests on it and on a tenth of the training images, drawn
    at random regardless of class. trainval contains the remaining training images. The paper
    publishes no list of images, so here the SHA-256 of a fixed seed and the file name decides: the
    list is the same on every machine. val is a draw of three images per species, like the
    published one.

    Read inat2019/{train2019, val2019}.json and the images that they name.
    """
    train, val = (_read_published(data, name) for name in ("train2019", "val2019"))
    num_moved = sizes.held_out("test") - len(val)
    if not 0 <= num_moved < len(train):
        raise DataError(
            f"{len(train)} training and {len(val)} val images, but {sizes.counts['test']} are "
            "needed for the test; the annotation files are incomplete. If it is an excerpt, enter "
            f"its sizes in {SMALL_DATA}"
        )
    single_group = np.zeros(len(train), dtype=np.int64)
    moved = seeded_ranks(train.source.encoded_names, single_group, RESPLIT_SEED) < num_moved
    if split == "test":
        groups = val, train.subset(np.flatnonzero(moved))
        names = np.concatenate([name.source.encoded_names for name in groups])
        labels = np.concatenate([name.label_array for name in groups])
        return Images(ImageFiles(data, names), labels, val.class_names)
    remaining = train.subset(np.flatnonzero(~moved))
    return with_val(remaining, split, sizes)


def _read_published(data: Path, name: str) -> Images:
    """Return the images of one annotation file; classes are ordered by id."""
    file = data / "inat2019" / f"{name}.json"
    content = read_json(file)
    try:
        ids = sorted(category["id"] for category in content["categories"])
        label_of = {category_id: label for label, category_id in enumerate(ids)}
        class_of = {a["image_id"]: a["category_id"] for a in content["annotations"]}
        names = [f"inat2019/{image['file_name']}" for image in content["images"]]
        labels = [label_of[class_of[image["id"]]] for image in content["images"]]
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{file}: not iNaturalist's images, annotations and categories "
            f"({type(error).__name__}: {error})"
        ) from error
    return image_files(data, names, labels, list(map(str, ids)))


def read_pets(data: Path, split: str, sizes: Sizes) -> Images:
    """Oxford-IIIT Pets, Parkhi et al., CVPR 2012.

    val is drawn per class from trainval.

    Read oxford-iiit-pet/annotations/{trainval,test}.txt and oxford-iiit-pet/images.
    """
    folder = data / "oxford-iiit-pet" / "annotations"
    columns = {"image": str, "class": int, "species": int, "breed": int}
    trainval, test = (read_list(folder / f"{name}.txt", columns) for name in ("trainval", "test"))
    breeds = {row[1]: row[0].rpartition("_")[0] for row in (*trainval, *test)}
    numbers = sorted(breeds)  # an excerpt may lack some
    classes = [breeds[number].replace("_", " ").title() for number in numbers]
    rows = test if split == "test" else trainval
    labels = [numbers.index(row[1]) for row in rows]
    names = [f"oxford-iiit-pet/images/{row[0]}.jpg" for row in rows]
    return with_val(image_files(data, names, labels, classes), split, sizes)


PLACES_FILES = {
    "train": (
        "places365_train_standard.txt",
        ("data_256_standard", "data_256", "data_large_standard", "data_large"),
    ),
    "test": ("places365_val.txt", ("val_256", "val_large")),
}
"""List and possible image folders, the 256 px version first."""


def read_places365(data: Path, split: str, sizes: Sizes) -> Images:
    """Places365-standard, Zhou et al., PAMI 2018.

    The test labels are not public, so test is the official val split, and val is a seeded draw of
    100 images per class from the training images. torchvision's class is not used, since it
    requires the checksums of the complete lists.

    Read places365/categories_places365.txt, the lists next to it and the images they name.
    """
    folder = data / "places365"
    rows = read_list(folder / "categories_places365.txt", {"class": str, "label": int})
    classes = [name for name, _ in rows]
    list_name, choices = PLACES_FILES["test" if split == "test" else "train"]
    present = [name for name in choices if (folder / name).is_dir()]
    if not present:
        raise DataError(f"{folder}: none of the image folders {', '.join(choices)} exists")
    rows = read_list(folder / list_name, {"image": str, "label": int})
    names = [f"places365/{present[0]}/{file.lstrip('/')}" for file, _ in rows]
    images = image_files(data, names, [label for _, label in rows], classes)
    return with_val(images, split, sizes)


def read_sun397(data: Path, split: str, sizes: Sizes) -> Images:
    """SUN397, Xiao et al., CVPR 2010, first published partition.

    torchvision does not read the partitions. Each class has 50 training and 50 test images. A
    seeded draw holds out 10 of the training images as val.

    Read SUN397/ClassName.txt, Training_01.txt, Testing_01.txt and the images they name.
    """
    folder = data / "SUN397"
    classes = read_names(folder / "ClassName.txt")
    label_of = {name: label for label, name in enumerate(classes)}
    partition = folder / ("Testing_01.txt" if split == "test" else "Training_01.txt")
    paths = read_names(partition)
    labels = [label_of[path.rpartition("/")[0]] for path in paths]
    images = image_files(data, [f"SUN397{path}" for path in paths], labels, classes)
    return with_val(images, split, sizes)


SETS: dict[str, tuple[Read, Files, PerClass, int]] = {
    "aircraft": (read_aircraft, small.aircraft, PerClass(classes=5, train=16, val=16), 0),
    "birdsnap": (read_birdsnap, small.birdsnap, PerClass(classes=6), 1),
    "caltech101": (read_caltech101, small.caltech101, PerClass(classes=5), 2),
    "cars": (read_cars, small.cars, PerClass(classes=6), 3),
    "cub200": (read_cub200, small.cub200, PerClass(classes=6), 16),
    "dtd": (read_dtd, small.dtd, PerClass(classes=5, train=16, val=16), 4),
    "flowers": (read_flowers, small.flowers, PerClass(classes=6, train=16, val=16), 5),
    "food": (read_food, small.food, PerClass(classes=5), 6),
    "inat1k": (read_inat1k, small.inat1k, PerClass(classes=6), 15),
    "pets": (read_pets, small.pets, PerClass(classes=6), 7),
    "places365": (read_places365, small.places365, PerClass(classes=5), 8),
    "sun397": (read_sun397, small.sun397, PerClass(classes=5), 9),
}
"""Reader, files, images per class and first pattern of each dataset."""
SOURCES = {"inat1k": "inat2019"}
"""Sources with another key than their dataset."""

DATASETS = {
    key: info(
        key,
        read=read,
        small=labeled_jpegs(per_class, first_kind=first_kind, files=files),
        sources=(source(SOURCES.get(key, key)),),
    )
    for key, (read, files, per_class, first_kind) in SETS.items()
}
