"""Small data sets written the way their publishers do: one function per layout.

Each gets a folder to write in, a plan of sizes and `draw`, which makes the JPEG of a new image of a
given class, and writes annotation files as the real ones are. `draw` leaves the class in the JPEG
as a comment, so that tests know the truth without the annotation files.
"""

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from transfer.datasets.expected import Sizes
from transfer.datasets.imagenet import imagenet100_wnids
from transfer.datasets.objectnet import WNIDS as OBJECTNET_WNIDS
from transfer.datasets.patterns import Pixels

Draw = Callable[[int], bytes]
"""JPEG of a new image of this class."""
INAT_MOVED = 4
"""Images per class of train2019.json, on the average, that the re-split tests on."""
DrawPixels = Callable[[int], Pixels]
"""(32, 32, 3) of a new image of this class."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Images per class of a small copy."""

    classes: int
    train: int
    val: int
    test: int

    @property
    def trainval(self) -> int:
        """Images of train and val together."""
        return self.train + self.val

    @property
    def sizes(self) -> Sizes:
        """What `small-data.json` will say."""
        splits = ("train", "val", "trainval", "test")
        counts = {split: self.classes * getattr(self, split) for split in splits}
        return Sizes(classes=self.classes, counts=counts, drawn=True)


def write_aircraft(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: images/ and one list of variants per split."""
    folder = root / "fgvc-aircraft-2013b" / "data"
    variants = ["707-320", "A300B4", "Boeing 717", "C-130", "DC-3", "Spitfire", "Yak-42", "Tu-134"]
    variants = variants[: plan.classes]
    write_lines(folder / "variants.txt", variants)
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    number = 1_000_000
    for label, variant in enumerate(variants):
        for split, lines in lists.items():
            for _ in range(getattr(plan, split)):
                number += 7
                write_file(folder / "images" / f"{number}.jpg", draw(label))
                lines.append(f"{number} {variant}")
    lists["trainval"] = lists["train"] + lists["val"]
    for split, lines in lists.items():
        write_lines(folder / f"images_variant_{split}.txt", sorted(lines))


def write_birdsnap(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: a folder per species."""
    folder = root / "birdsnap"
    species = ["Acadian Flycatcher", "Blue Jay", "Dunlin", "Gadwall", "Killdeer", "Osprey", "Sora"]
    species = species[: plan.classes]
    directories = [name.replace(" ", "_") for name in species]
    numbered = enumerate(zip(species, directories, strict=True), start=1)
    lines = [f"{i}\t{name}\t{name}\t{directory}" for i, (name, directory) in numbered]
    write_lines(folder / "species.txt", ["id\tcommon\tscientific\tdir", *lines])
    for label, directory in enumerate(directories):
        for i in range(plan.trainval + plan.test):
            write_file(folder / "images" / directory / f"{430_000 + 31 * i}.jpg", draw(label))


def write_caltech101(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: a folder per category, the background class among them."""
    folder = root / "caltech101" / "101_ObjectCategories"
    classes = ["BACKGROUND_Google", "Faces", "Leopards", "accordion", "airplanes", "anchor", "ant"]
    for label, name in enumerate(classes[: plan.classes]):
        for i in range(plan.trainval + plan.test):
            write_file(folder / name / f"image_{i + 1:04d}.jpg", draw(label))
    # the published archive has such a file, which is no image
    write_file(folder / "BACKGROUND_Google" / "tmp", b"")


def write_cars(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: devkit .mat files with labels."""
    folder = root / "stanford_cars"
    makes = ["AM General Hummer", "Acura RL", "BMW X6", "Dodge Ram", "Fiat 500", "Jeep Patriot"]
    names = np.array([f"{make} 2012" for make in makes[: plan.classes]], dtype=object)
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names[None]})
    for part, per_class, annotations in (
        ("cars_train", plan.trainval, folder / "devkit" / "cars_train_annos.mat"),
        ("cars_test", plan.test, folder / "cars_test_annos_withlabels.mat"),
    ):
        labels = [label for _ in range(per_class) for label in range(plan.classes)]
        rows = [(1, 1, 60, 60, label + 1, f"{i + 1:05d}.jpg") for i, label in enumerate(labels)]
        fields = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname"]
        table = np.array([rows], dtype=[(field, object) for field in fields])
        savemat(annotations, {"annotations": table})
        for row, label in zip(rows, labels, strict=True):
            write_file(folder / part / str(row[-1]), draw(label))


def write_dtd(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: labels/ with the three lists of split 1."""
    folder = root / "dtd" / "dtd"
    classes = ["banded", "blotchy", "bubbly", "cracked", "dotted", "fibrous", "gauzy", "knitted"]
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for label, name in enumerate(classes[: plan.classes]):
        number = 0
        for split, lines in lists.items():
            for _ in range(getattr(plan, split)):
                number += 1
                lines.append(f"{name}/{name}_{number:04d}.jpg")
                write_file(folder / "images" / lines[-1], draw(label))
    for split, lines in lists.items():
        write_lines(folder / "labels" / f"{split}1.txt", lines)


def write_flowers(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: imagelabels.mat and setid.mat."""
    folder = root / "flowers-102"
    labels = np.arange(plan.classes * (plan.trainval + plan.test)) % plan.classes
    for i, label in enumerate(labels):
        write_file(folder / "jpg" / f"image_{i + 1:05d}.jpg", draw(int(label)))
    numbers = np.arange(1, len(labels) + 1)
    first_val, first_test = plan.train * plan.classes, plan.trainval * plan.classes
    splits = np.split(numbers, [first_val, first_test])
    ids = dict(zip(("trnid", "valid", "tstid"), (s[None] for s in splits), strict=True))
    savemat(folder / "setid.mat", ids)
    savemat(folder / "imagelabels.mat", {"labels": labels[None] + 1})


def write_food(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: meta/ with train.json and test.json."""
    folder = root / "food-101"
    classes = ["apple_pie", "beignets", "churros", "donuts", "edamame", "gyoza", "hot_dog", "ramen"]
    classes = classes[: plan.classes]
    for split, per_class, first in (("train", plan.trainval, 1_000), ("test", plan.test, 9_000)):
        listed = {name: [f"{name}/{first + 13 * i}" for i in range(per_class)] for name in classes}
        for label, name in enumerate(classes):
            for path in listed[name]:
                write_file(folder / "images" / f"{path}.jpg", draw(label))
        write_file(folder / "meta" / f"{split}.json", json.dumps(listed).encode())
        write_lines(
            folder / "meta" / f"{split}.txt", [p for paths in listed.values() for p in paths]
        )
    write_lines(folder / "meta" / "classes.txt", classes)
    spoken = [name.replace("_", " ").capitalize() for name in classes]
    write_lines(folder / "meta" / "labels.txt", spoken)


def write_pets(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: annotations/ with trainval.txt and test.txt."""
    folder = root / "oxford-iiit-pet"
    # the published numbering follows the alphabet without regard to case; cats have capitals
    breeds = ["Abyssinian", "american_bulldog", "beagle", "Bengal", "boxer", "havanese", "Persian"]
    breeds = breeds[: plan.classes]
    for split, per_class, first in (("trainval", plan.trainval, 1), ("test", plan.test, 101)):
        lines = []
        for label, breed in enumerate(breeds):
            species = 1 if breed[0].isupper() else 2
            for i in range(first, first + per_class):
                write_file(folder / "images" / f"{breed}_{i}.jpg", draw(label))
                lines.append(f"{breed}_{i} {label + 1} {species} 1")
        write_lines(folder / "annotations" / f"{split}.txt", lines)


def write_places365(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: lists of files and labels."""
    folder = root / "places365"
    classes = ["/a/airfield", "/a/alley", "/b/bridge", "/c/castle", "/f/field/wild", "/s/street"]
    classes = classes[: plan.classes]
    numbered = [f"{name} {label}" for label, name in enumerate(classes)]
    write_lines(folder / "categories_places365.txt", numbered)
    lines = []
    for label, name in enumerate(classes):
        for i in range(plan.trainval):
            path = f"{name}/{i + 1:08d}.jpg"
            write_file(folder / "data_256_standard" / path.lstrip("/"), draw(label))
            lines.append(f"{path} {label}")
    write_lines(folder / "places365_train_standard.txt", lines)
    lines = []
    for i in range(plan.test * plan.classes):
        name = f"Places365_val_{i + 1:08d}.jpg"
        write_file(folder / "val_256" / name, draw(i * 7 % plan.classes))
        lines.append(f"{name} {i * 7 % plan.classes}")
    write_lines(folder / "places365_val.txt", lines)


def write_sun397(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: ClassName.txt, Training_01.txt and Testing_01.txt."""
    folder = root / "SUN397"
    classes = ["/a/abbey", "/a/apse/indoor", "/b/bakery/shop", "/c/canyon", "/d/diner/outdoor"]
    classes = classes[: plan.classes]
    write_lines(folder / "ClassName.txt", classes)
    lists: dict[str, list[str]] = {"Training": [], "Testing": []}
    for label, name in enumerate(classes):
        for i in range(plan.trainval + plan.test):
            path = f"{name}/sun_a{chr(97 + i // 26)}{chr(97 + i % 26)}qdkwkdm.jpg"
            write_file(folder / path.lstrip("/"), draw(label))
            lists["Training" if i < plan.trainval else "Testing"].append(path)
    for part, lines in lists.items():
        write_lines(folder / f"{part}_01.txt", lines)


def write_imagenet(root: Path, plan: Plan, draw: Draw) -> None:
    """All but two of the classes are in the ImageNet-100 list."""
    number = 0
    for label, wnid in enumerate(imagenet_wnids(plan)):
        for i in range(plan.trainval):
            write_file(
                root / "imagenet" / "train" / wnid / f"{wnid}_{10 + 17 * i}.JPEG", draw(label)
            )
        for _ in range(plan.test):
            number += 1
            name = f"ILSVRC2012_val_{number:08d}.JPEG"
            write_file(root / "imagenet" / "val" / wnid / name, draw(label))


def imagenet_wnids(plan: Plan) -> list[str]:
    """Class folders of the small ImageNet, in the order of its labels; four are in ObjectNet."""
    listed = imagenet100_wnids()
    shared = [wnid for wnid in listed if wnid in OBJECTNET_WNIDS.values()][:4]
    others = [wnid for wnid in listed if wnid not in OBJECTNET_WNIDS.values()]
    in100 = [*shared, *others][: plan.classes - 2]
    return sorted([*in100, "n01440764", "n15075141"])


def write_lists(root: Path, plan: Plan, per_class: dict[str, int]) -> None:
    """SimCLR's lists of labelled images: WNID_NUMBER.JPEG, so many of each class per list."""
    for listing, count in per_class.items():
        names = [
            f"{wnid}_{10 + 17 * i}.JPEG"
            for i in range(plan.trainval - count, plan.trainval)
            for wnid in imagenet_wnids(plan)
        ]
        write_lines(root / "imagenet_subsets" / listing, names)


def write_cub200(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: four lists of numbered images."""
    folder = root / "CUB_200_2011"
    species = ["Black_footed_Albatross", "Laysan_Albatross", "Crested_Auklet", "Brewer_Blackbird"]
    species += ["Bobolink", "Indigo_Bunting", "Cardinal", "Spotted_Catbird"]
    classes = [f"{i:03d}.{name}" for i, name in enumerate(species[: plan.classes], start=1)]
    lists: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    number = 0
    for label, name in enumerate(classes):
        for i in range(plan.trainval + plan.test):
            number += 1
            file = f"{name}/{name[4:]}_{i:04d}_{796_000 + number}.jpg"
            write_file(folder / "images" / file, draw(label))
            lists["images"].append(f"{number} {file}")
            lists["image_class_labels"].append(f"{number} {label + 1}")
            # trained on and tested on in turns, as far as both last
            lists["train_test_split"].append(f"{number} {int(i >= plan.test)}")
    lists["classes"] = [f"{i} {name}" for i, name in enumerate(classes, start=1)]
    for listing, lines in lists.items():
        write_lines(folder / f"{listing}.txt", lines)


def write_inat1k(root: Path, plan: Plan, draw: Draw) -> None:
    """As published: an annotation file for train and one for val; some of train is tested on."""
    folder = root / "inat2019"
    kinds = ["Amphibians", "Birds", "Fungi", "Insects", "Plants", "Reptiles"]
    categories = [{"id": i, "name": str(i)} for i in range(plan.classes)]
    number = 0
    parts = {"train2019": plan.trainval + INAT_MOVED, "val2019": plan.test - INAT_MOVED}
    for part, per_class in parts.items():
        images, annotations = [], []
        for label in range(plan.classes):
            for _ in range(per_class):
                number += 1
                file = f"train_val2019/{kinds[label]}/{label}/{number:032x}.jpg"
                write_file(folder / file, draw(label))
                images.append({"id": number, "file_name": file})
                annotations.append({"id": number, "image_id": number, "category_id": label})
        content = {"images": images, "annotations": annotations, "categories": categories}
        write_file(folder / f"{part}.json", json.dumps(content).encode())


def write_cifar10(root: Path, plan: Plan, draw: DrawPixels) -> None:
    """As published: python pickles."""
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship"]
    names = names[: plan.classes]
    folder = root / "cifar-10-batches-py"
    labels = np.arange(plan.classes * plan.trainval) % plan.classes
    for i, part in enumerate(np.array_split(labels, 5), start=1):
        batch = _cifar_batch(f"training batch {i} of 5", part, names, draw)
        _write_pickle(folder / f"data_batch_{i}", batch | {"labels": part.tolist()})
    labels = np.arange(plan.classes * plan.test)[::-1] % plan.classes
    batch = _cifar_batch("testing batch 1 of 1", labels, names, draw)
    _write_pickle(folder / "test_batch", batch | {"labels": labels.tolist()})
    meta = {"label_names": names, "num_cases_per_batch": 10_000, "num_vis": 3_072}
    _write_pickle(folder / "batches.meta", meta)


def write_cifar100(root: Path, plan: Plan, draw: DrawPixels) -> None:
    """As published: python pickles with fine labels."""
    names = ["apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle"]
    names = names[: plan.classes]
    folder = root / "cifar-100-python"
    for part, per_class in (("train", plan.trainval), ("test", plan.test)):
        labels = np.arange(plan.classes * per_class) % plan.classes
        batch = _cifar_batch(f"{part}ing batch 1 of 1", labels, names, draw)
        fine_and_coarse = {
            "fine_labels": labels.tolist(),
            "coarse_labels": (labels // 2).tolist(),
        }
        _write_pickle(folder / part, batch | fine_and_coarse)
    coarse = [f"group_{i}" for i in range((plan.classes + 1) // 2)]
    _write_pickle(folder / "meta", {"fine_label_names": names, "coarse_label_names": coarse})


def write_cifar_folder(root: Path, name: str, plan: Plan, draw: Draw) -> None:
    """The other layout of both: NAME/{train,test}/CLASS/0000.jpg."""
    for part, per_class in (("train", plan.trainval), ("test", plan.test)):
        for label in range(plan.classes):
            for i in range(per_class):
                write_file(root / name / part / f"class_{label}" / f"{i:04d}.jpg", draw(label))


def _cifar_batch(
    title: str, labels: np.ndarray, names: Sequence[str], draw: DrawPixels
) -> dict[str, Any]:
    """Fields that both sets share; a row of data is the red, the green, then the blue plane."""
    rows = [draw(int(label)).transpose(2, 0, 1).reshape(-1) for label in labels]
    files = [f"{names[label]}_s_{i:06d}.png" for i, label in enumerate(labels)]
    return {"batch_label": title, "data": np.stack(rows), "filenames": files}


def write_file(file: Path, content: bytes) -> None:
    """With the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def write_lines(file: Path, lines: Sequence[str]) -> None:
    """Each closed by a newline."""
    write_file(file, "".join(f"{line}\n" for line in lines).encode())


def _write_pickle(file: Path, content: dict[str, Any]) -> None:
    write_file(file, pickle.dumps(content, protocol=4))
