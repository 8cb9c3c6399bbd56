"""Small versions of datasets with one label per image.

A dataset's file calls `labeled_jpegs` with the number of images per class and a function that
yields the files of the published layout: paths with the classes of images to draw, and annotations.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from transfer.datasets.expected import Sizes
from transfer.datasets.info import SmallVersion, generated_sizes
from transfer.datasets.synthetic.patterns import draw_size_px, jpeg, kinds_of_classes, paint


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


File = tuple[str, int | list[str] | dict[str, Any]]
"""Path in the data folder, and the content.

The content is the class of a JPEG image to draw, lines of text, or variables as JSON or MATLAB.
"""
Files = Callable[[PerClass], Iterator[File]]


def labeled_jpegs(per_class: PerClass, *, first_kind: int, files: Files) -> SmallVersion:
    """Return a small version with JPEG images of 64 to 80 px.

    first_kind: pattern of the first class; choose another one than the other datasets.
    """

    def write(data: Path, rng: np.random.Generator) -> None:
        kinds = kinds_of_classes(per_class.classes, first_kind)
        for path, content in files(per_class):
            if isinstance(content, int):
                image = paint(kinds[content], draw_size_px(rng), rng)
                # the comment contains the class, for tests without the annotation files
                write_file(data / path, jpeg(image, comment=f"class {content}"))
            elif isinstance(content, list):
                write_lines(data / path, content)
            elif path.endswith(".mat"):
                write_file(data / path, _matlab(content))
            else:
                write_file(data / path, json.dumps(content).encode())

    return SmallVersion(sizes=per_class.sizes, write=write)


def _matlab(variables: dict[str, Any]) -> bytes:
    from scipy.io import savemat

    content = BytesIO()
    savemat(content, variables)
    return content.getvalue()


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


def _splits(per_class: PerClass) -> list[str]:
    """Return the split of each image of a class."""
    return [s for s in ("train", "val", "test") for _ in range(getattr(per_class, s))]


def aircraft(per_class: PerClass) -> Iterator[File]:
    """Yield images and one list of variants per split."""
    folder, splits = "fgvc-aircraft-2013b/data", _splits(per_class)
    variants = ["707-320", "A300B4", "Boeing 717", "C-130", "DC-3"]
    yield f"{folder}/variants.txt", variants
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for index, (label, variant, i) in enumerate(_enumerate_images(variants, len(splits)), start=1):
        number = 1_000_000 + 7 * index
        yield f"{folder}/images/{number}.jpg", label
        lists[splits[i]].append(f"{number} {variant}")
    lists["trainval"] = lists["train"] + lists["val"]
    for split, lines in lists.items():
        yield f"{folder}/images_variant_{split}.txt", sorted(lines)


def birdsnap(per_class: PerClass) -> Iterator[File]:
    """Yield a folder per species."""
    species = ["Acadian_Flycatcher", "Blue_Jay", "Dunlin", "Gadwall", "Killdeer", "Osprey"]
    for label, name, i in _enumerate_images(species, per_class.trainval + per_class.test):
        yield f"birdsnap/images/{name}/{430_000 + 31 * i}.jpg", label


def caltech101(per_class: PerClass) -> Iterator[File]:
    """Yield a folder per category, including the background class."""
    folder = "caltech101/101_ObjectCategories"
    classes = ["BACKGROUND_Google", "Faces", "Leopards", "accordion", "airplanes"]
    for label, name, i in _enumerate_images(classes, per_class.trainval + per_class.test):
        yield f"{folder}/{name}/image_{i + 1:04d}.jpg", label
    # the published archive contains this file, which is not an image
    yield f"{folder}/BACKGROUND_Google/tmp", []


def cars(per_class: PerClass) -> Iterator[File]:
    """Yield images, and the devkit's .mat files with the labels."""
    makes = ["AM General Hummer", "Acura RL", "BMW X6", "Dodge Ram", "Fiat 500", "Jeep Patriot"]
    names = np.array([f"{make} 2012" for make in makes], dtype=object)
    yield "stanford_cars/devkit/cars_meta.mat", {"class_names": names[None]}
    for folder, num_images, annotations in (
        ("cars_train", per_class.trainval, "devkit/cars_train_annos.mat"),
        ("cars_test", per_class.test, "cars_test_annos_withlabels.mat"),
    ):
        labels = [label for _ in range(num_images) for label in range(per_class.classes)]
        rows = [(label + 1, f"{i + 1:05d}.jpg") for i, label in enumerate(labels)]
        table = np.array([rows], dtype=[("class", object), ("fname", object)])
        yield f"stanford_cars/{annotations}", {"annotations": table}
        for number, file in rows:
            yield f"stanford_cars/{folder}/{file}", number - 1


def cub200(per_class: PerClass) -> Iterator[File]:
    """Yield images and the four lists."""
    species = ["Black_footed_Albatross", "Laysan_Albatross", "Crested_Auklet"]
    species += ["Brewer_Blackbird", "Bobolink", "Indigo_Bunting"]
    classes = [f"{i:03d}.{name}" for i, name in enumerate(species, start=1)]
    lists: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    images = _enumerate_images(classes, per_class.trainval + per_class.test)
    for number, (label, name, i) in enumerate(images, start=1):
        file = f"{name}/{name[4:]}_{i:04d}_{796_000 + number}.jpg"
        yield f"CUB_200_2011/images/{file}", label
        values = (file, label + 1, int(i >= per_class.test))
        for lines, value in zip(lists.values(), values, strict=True):
            lines.append(f"{number} {value}")
    lists["classes"] = [f"{i} {name}" for i, name in enumerate(classes, start=1)]
    for name, lines in lists.items():
        yield f"CUB_200_2011/{name}.txt", lines


def dtd(per_class: PerClass) -> Iterator[File]:
    """Yield images and the three lists of the first partition."""
    classes, splits = ["banded", "blotchy", "bubbly", "cracked", "dotted"], _splits(per_class)
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for label, name, i in _enumerate_images(classes, len(splits)):
        file = f"{name}/{name}_{i + 1:04d}.jpg"
        yield f"dtd/dtd/images/{file}", label
        lists[splits[i]].append(file)
    for split, lines in lists.items():
        yield f"dtd/dtd/labels/{split}1.txt", lines


def flowers(per_class: PerClass) -> Iterator[File]:
    """Yield images, imagelabels.mat and setid.mat."""
    labels = np.arange(per_class.classes * (per_class.trainval + per_class.test))
    labels %= per_class.classes
    for number, label in enumerate(labels, start=1):
        yield f"flowers-102/jpg/image_{number:05d}.jpg", int(label)
    ends = [n * per_class.classes for n in (per_class.train, per_class.trainval)]
    train, val, test = np.split(np.arange(1, len(labels) + 1)[None], ends, axis=1)
    yield "flowers-102/setid.mat", {"trnid": train, "valid": val, "tstid": test}
    yield "flowers-102/imagelabels.mat", {"labels": labels[None] + 1}


def food(per_class: PerClass) -> Iterator[File]:
    """Yield images, train.json and test.json."""
    classes = ["apple_pie", "beignets", "churros", "donuts", "edamame"]
    sizes = ("train", per_class.trainval, 1_000), ("test", per_class.test, 9_000)
    for split, num_images, first in sizes:
        paths = {name: [f"{name}/{first + 13 * i}" for i in range(num_images)] for name in classes}
        for label, name, i in _enumerate_images(classes, num_images):
            yield f"food-101/images/{paths[name][i]}.jpg", label
        yield f"food-101/meta/{split}.json", paths


SMALL_MOVED = 4
"""Images per class, on average, that move from train2019.json to test."""


def inat1k(per_class: PerClass) -> Iterator[File]:
    """Yield images, and annotation files for train and val."""
    kingdoms = ["Amphibians", "Birds", "Fungi", "Insects", "Plants", "Reptiles"]
    categories = [{"id": i, "name": str(i)} for i in range(per_class.classes)]
    number = 0
    sizes = {"train2019": per_class.trainval + SMALL_MOVED, "val2019": per_class.test - SMALL_MOVED}
    for name, num_images in sizes.items():
        images, annotations = [], []
        for label, kingdom, _ in _enumerate_images(kingdoms, num_images):
            number += 1
            file = f"train_val2019/{kingdom}/{label}/{number:032x}.jpg"
            yield f"inat2019/{file}", label
            images.append({"id": number, "file_name": file})
            annotations.append({"id": number, "image_id": number, "category_id": label})
        content = {"images": images, "annotations": annotations, "categories": categories}
        yield f"inat2019/{name}.json", content


def pets(per_class: PerClass) -> Iterator[File]:
    """Yield images, trainval.txt and test.txt."""
    # breeds are numbered alphabetically, ignoring case; cats have a capital letter
    breeds = ["Abyssinian", "american_bulldog", "beagle", "Bengal", "boxer", "havanese"]
    for split, num_images, first in (
        ("trainval", per_class.trainval, 1),
        ("test", per_class.test, 101),
    ):
        lines = []
        for label, breed, i in _enumerate_images(breeds, num_images):
            species = 1 if breed[0].isupper() else 2
            yield f"oxford-iiit-pet/images/{breed}_{first + i}.jpg", label
            lines.append(f"{breed}_{first + i} {label + 1} {species} 1")
        yield f"oxford-iiit-pet/annotations/{split}.txt", lines


def places365(per_class: PerClass) -> Iterator[File]:
    """Yield images, the categories, and the lists with labels."""
    classes = ["/a/airfield", "/a/alley", "/b/bridge", "/c/castle", "/f/field/wild"]
    num_test = per_class.test * per_class.classes
    train = [
        (f"{name}/{i + 1:08d}.jpg", label)
        for label, name, i in _enumerate_images(classes, per_class.trainval)
    ]
    test = [(f"Places365_val_{i + 1:08d}.jpg", i * 7 % per_class.classes) for i in range(num_test)]
    categories = [f"{name} {label}" for label, name in enumerate(classes)]
    yield "places365/categories_places365.txt", categories
    for folder, listing, images in (
        ("data_256_standard", "places365_train_standard.txt", train),
        ("val_256", "places365_val.txt", test),
    ):
        for path, label in images:
            yield f"places365/{folder}/{path.lstrip('/')}", label
        yield f"places365/{listing}", [f"{path} {label}" for path, label in images]


def sun397(per_class: PerClass) -> Iterator[File]:
    """Yield images, ClassName.txt, Training_01.txt and Testing_01.txt."""
    classes = ["/a/abbey", "/a/apse/indoor", "/b/bakery/shop", "/c/canyon", "/d/diner/outdoor"]
    yield "SUN397/ClassName.txt", classes
    lists: dict[str, list[str]] = {"Training": [], "Testing": []}
    for label, name, i in _enumerate_images(classes, per_class.trainval + per_class.test):
        path = f"{name}/sun_a{chr(97 + i // 26)}{chr(97 + i % 26)}qdkwkdm.jpg"
        yield f"SUN397{path}", label
        lists["Training" if i < per_class.trainval else "Testing"].append(path)
    for name, lines in lists.items():
        yield f"SUN397/{name}_01.txt", lines
