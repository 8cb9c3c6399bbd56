"""Small versions of datasets with one label per image.

A dataset's file calls `labeled_jpegs` with the number of images per class and a writer. The writer
creates images and annotation files in the published layout. It gets the function `draw`, which
returns a new image of a class.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.info import SmallVersion, generated_sizes
from transfer.datasets.synthetic.patterns import draw_size_px, jpeg, kinds_of_classes, paint

Draw = Callable[[int], bytes]
"""Returns a new image of class `label` as a JPEG file."""


@dataclass(frozen=True, kw_only=True)
class PerClass:
    """Images per class of a small version."""

    classes: int
    train: int = 24
    val: int = 8
    test: int = 20

    @property
    def trainval(self) -> int:
        """Images per class of train and val together."""
        return self.train + self.val

    @property
    def sizes(self) -> Sizes:
        """Total images of each split, as `small-data.json` stores them."""
        counts = (self.classes * n for n in (self.train, self.val, self.test))
        return generated_sizes(self.classes, *counts)


def labeled_jpegs(
    per_class: PerClass, *, first_kind: int, write: Callable[[Path, PerClass, Draw], None]
) -> SmallVersion:
    """Return a small version with JPEG images of 64 to 80 px.

    first_kind: pattern of the first class; choose another one than the other datasets.
    write: gets the data folder, the images per class and `draw`.
    """

    def write_set(data: Path, rng: np.random.Generator) -> None:
        kinds = kinds_of_classes(per_class.classes, first_kind)
        write(data, per_class, partial(_draw_jpeg, kinds, rng))

    return SmallVersion(sizes=per_class.sizes, write=write_set)


def _draw_jpeg(kinds: list[int], rng: np.random.Generator, label: int) -> bytes:
    # the comment contains the class, for tests without the annotation files
    return jpeg(paint(kinds[label], draw_size_px(rng), rng), comment=f"class {label}")


def write_file(file: Path, content: bytes) -> None:
    """Write a file and create its parent folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def write_lines(file: Path, lines: Sequence[str]) -> None:
    """Write lines, each with a final newline, and create the parent folders."""
    write_file(file, "".join(f"{line}\n" for line in lines).encode())


def _enumerate_images(classes: Sequence[str], count: int) -> Iterator[tuple[int, str, int]]:
    """Yield label, class name and number in the class of each image."""
    for label, name in enumerate(classes):
        for i in range(count):
            yield label, name, i


def write_aircraft(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/ and one list of variants per split."""
    folder = data / "fgvc-aircraft-2013b" / "data"
    variants = ["707-320", "A300B4", "Boeing 717", "C-130", "DC-3"]
    write_lines(folder / "variants.txt", variants)
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    splits = [split for split in lists for _ in range(getattr(per_class, split))]
    for index, (label, variant, i) in enumerate(_enumerate_images(variants, len(splits)), start=1):
        number = 1_000_000 + 7 * index
        write_file(folder / "images" / f"{number}.jpg", draw(label))
        lists[splits[i]].append(f"{number} {variant}")
    lists["trainval"] = lists["train"] + lists["val"]
    for split, lines in lists.items():
        write_lines(folder / f"images_variant_{split}.txt", sorted(lines))


def write_birdsnap(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write a folder per species."""
    folder = data / "birdsnap"
    species = ["Acadian_Flycatcher", "Blue_Jay", "Dunlin", "Gadwall", "Killdeer", "Osprey"]
    for label, directory, i in _enumerate_images(species, per_class.trainval + per_class.test):
        write_file(folder / "images" / directory / f"{430_000 + 31 * i}.jpg", draw(label))


def write_caltech101(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write a folder per category, including the background class."""
    folder = data / "caltech101" / "101_ObjectCategories"
    classes = ["BACKGROUND_Google", "Faces", "Leopards", "accordion", "airplanes"]
    for label, name, i in _enumerate_images(classes, per_class.trainval + per_class.test):
        write_file(folder / name / f"image_{i + 1:04d}.jpg", draw(label))
    # the published archive contains this file, which is not an image
    write_file(folder / "BACKGROUND_Google" / "tmp", b"")


def write_cars(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, and the devkit's .mat files with the labels."""
    from scipy.io import savemat

    folder = data / "stanford_cars"
    makes = ["AM General Hummer", "Acura RL", "BMW X6", "Dodge Ram", "Fiat 500", "Jeep Patriot"]
    names = np.array([f"{make} 2012" for make in makes], dtype=object)
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names[None]})
    for image_folder, num_images, annotations in (
        ("cars_train", per_class.trainval, folder / "devkit" / "cars_train_annos.mat"),
        ("cars_test", per_class.test, folder / "cars_test_annos_withlabels.mat"),
    ):
        labels = [label for _ in range(num_images) for label in range(per_class.classes)]
        rows = [(label + 1, f"{i + 1:05d}.jpg") for i, label in enumerate(labels)]
        table = np.array([rows], dtype=[("class", object), ("fname", object)])
        savemat(annotations, {"annotations": table})
        for number, file in rows:
            write_file(folder / image_folder / file, draw(number - 1))


def write_cub200(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images and the four lists."""
    folder = data / "CUB_200_2011"
    species = ["Black_footed_Albatross", "Laysan_Albatross", "Crested_Auklet"]
    species += ["Brewer_Blackbird", "Bobolink", "Indigo_Bunting"]
    classes = [f"{i:03d}.{name}" for i, name in enumerate(species, start=1)]
    lists: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    images = _enumerate_images(classes, per_class.trainval + per_class.test)
    for number, (label, name, i) in enumerate(images, start=1):
        file = f"{name}/{name[4:]}_{i:04d}_{796_000 + number}.jpg"
        write_file(folder / "images" / file, draw(label))
        lists["images"].append(f"{number} {file}")
        lists["image_class_labels"].append(f"{number} {label + 1}")
        lists["train_test_split"].append(f"{number} {int(i >= per_class.test)}")
    lists["classes"] = [f"{i} {name}" for i, name in enumerate(classes, start=1)]
    for name, lines in lists.items():
        write_lines(folder / f"{name}.txt", lines)


def write_dtd(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/, and labels/ with the three lists of the first partition."""
    folder = data / "dtd" / "dtd"
    classes = ["banded", "blotchy", "bubbly", "cracked", "dotted"]
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    splits = [split for split in lists for _ in range(getattr(per_class, split))]
    for label, name, i in _enumerate_images(classes, len(splits)):
        file = f"{name}/{name}_{i + 1:04d}.jpg"
        write_file(folder / "images" / file, draw(label))
        lists[splits[i]].append(file)
    for split, lines in lists.items():
        write_lines(folder / "labels" / f"{split}1.txt", lines)


def write_flowers(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write jpg/, imagelabels.mat and setid.mat."""
    from scipy.io import savemat

    folder = data / "flowers-102"
    labels = np.arange(per_class.classes * (per_class.trainval + per_class.test))
    labels %= per_class.classes
    for i, label in enumerate(labels):
        write_file(folder / "jpg" / f"image_{i + 1:05d}.jpg", draw(int(label)))
    numbers = np.arange(1, len(labels) + 1)
    first_val, first_test = (n * per_class.classes for n in (per_class.train, per_class.trainval))
    train, val, test = np.split(numbers[None], [first_val, first_test], axis=1)
    savemat(folder / "setid.mat", {"trnid": train, "valid": val, "tstid": test})
    savemat(folder / "imagelabels.mat", {"labels": labels[None] + 1})


def write_food(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/, and meta/ with train.json and test.json."""
    folder = data / "food-101"
    classes = ["apple_pie", "beignets", "churros", "donuts", "edamame"]
    for split, num_images, first in (
        ("train", per_class.trainval, 1_000),
        ("test", per_class.test, 9_000),
    ):
        paths = {name: [f"{name}/{first + 13 * i}" for i in range(num_images)] for name in classes}
        for label, name, i in _enumerate_images(classes, num_images):
            write_file(folder / "images" / f"{paths[name][i]}.jpg", draw(label))
        write_file(folder / "meta" / f"{split}.json", json.dumps(paths).encode())


SMALL_MOVED = 4
"""Images per class, on average, that move from train2019.json to test."""


def write_inat1k(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, and annotation files for train and val."""
    folder = data / "inat2019"
    kingdoms = ["Amphibians", "Birds", "Fungi", "Insects", "Plants", "Reptiles"]
    categories = [{"id": i, "name": str(i)} for i in range(per_class.classes)]
    number = 0
    sizes = {"train2019": per_class.trainval + SMALL_MOVED, "val2019": per_class.test - SMALL_MOVED}
    for name, num_images in sizes.items():
        images, annotations = [], []
        for label, kingdom, _ in _enumerate_images(kingdoms, num_images):
            number += 1
            file = f"train_val2019/{kingdom}/{label}/{number:032x}.jpg"
            write_file(folder / file, draw(label))
            images.append({"id": number, "file_name": file})
            annotations.append({"id": number, "image_id": number, "category_id": label})
        content = {"images": images, "annotations": annotations, "categories": categories}
        write_file(folder / f"{name}.json", json.dumps(content).encode())


def write_pets(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write images/, and annotations/ with trainval.txt and test.txt."""
    folder = data / "oxford-iiit-pet"
    # breeds are numbered alphabetically, ignoring case; cats have a capital letter
    breeds = ["Abyssinian", "american_bulldog", "beagle", "Bengal", "boxer", "havanese"]
    for split, num_images, first in (
        ("trainval", per_class.trainval, 1),
        ("test", per_class.test, 101),
    ):
        lines = []
        for label, breed, i in _enumerate_images(breeds, num_images):
            species = 1 if breed[0].isupper() else 2
            write_file(folder / "images" / f"{breed}_{first + i}.jpg", draw(label))
            lines.append(f"{breed}_{first + i} {label + 1} {species} 1")
        write_lines(folder / "annotations" / f"{split}.txt", lines)


def write_places365(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, the categories, and the lists with labels."""
    folder = data / "places365"
    classes = ["/a/airfield", "/a/alley", "/b/bridge", "/c/castle", "/f/field/wild"]
    numbered = [f"{name} {label}" for label, name in enumerate(classes)]
    write_lines(folder / "categories_places365.txt", numbered)
    lines = []
    for label, name, i in _enumerate_images(classes, per_class.trainval):
        path = f"{name}/{i + 1:08d}.jpg"
        write_file(folder / "data_256_standard" / path.lstrip("/"), draw(label))
        lines.append(f"{path} {label}")
    write_lines(folder / "places365_train_standard.txt", lines)
    lines = []
    for i in range(per_class.test * per_class.classes):
        name = f"Places365_val_{i + 1:08d}.jpg"
        write_file(folder / "val_256" / name, draw(i * 7 % per_class.classes))
        lines.append(f"{name} {i * 7 % per_class.classes}")
    write_lines(folder / "places365_val.txt", lines)


def write_sun397(data: Path, per_class: PerClass, draw: Draw) -> None:
    """Write the images, ClassName.txt, Training_01.txt and Testing_01.txt."""
    folder = data / "SUN397"
    classes = ["/a/abbey", "/a/apse/indoor", "/b/bakery/shop", "/c/canyon", "/d/diner/outdoor"]
    write_lines(folder / "ClassName.txt", classes)
    lists: dict[str, list[str]] = {"Training": [], "Testing": []}
    for label, class_name, i in _enumerate_images(classes, per_class.trainval + per_class.test):
        path = f"{class_name}/sun_a{chr(97 + i // 26)}{chr(97 + i % 26)}qdkwkdm.jpg"
        write_file(folder / path.lstrip("/"), draw(label))
        lists["Training" if i < per_class.trainval else "Testing"].append(path)
    for name, lines in lists.items():
        write_lines(folder / f"{name}_01.txt", lines)
