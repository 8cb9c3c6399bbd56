"""Datasets with one label per image: CIFAR, CUB and LooC's iNaturalist."""

import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from tests.transfer.datasets.conftest import CopyOf
from transfer.datasets.catalog import open_split
from transfer.datasets.check import check
from transfer.datasets.expected import DataError, Sizes, mark_small
from transfer.datasets.images import encode_names, image_files
from transfer.datasets.labeled import RESPLIT_SEED
from transfer.datasets.splits import seeded_ranks, write_list

CIFAR = {
    "cifar10": ([f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)], "labels"),
    "cifar100": (["cifar-100-python/train"], "fine_labels"),
}


@pytest.mark.parametrize("key", CIFAR)
def test_cifar_pixels_and_labels_are_those_of_the_pickles(key: str, small_data: Path) -> None:
    batches, field = CIFAR[key]
    contents = [pickle.loads((small_data / batch).read_bytes()) for batch in batches]
    images = open_split(key, small_data, "trainval")
    assert images.labels.tolist() == [label for batch in contents for label in batch[field]]
    for i in (0, len(images) - 1):
        row = contents[0 if i == 0 else -1]["data"][i and -1]
        x, y = 5, 9
        assert images[i][0].getpixel((x, y)) == tuple(row[y * 32 + x :: 32 * 32])
    first, second = images.class_names[:2]
    assert (first, second) in (("airplane", "automobile"), ("apple", "aquarium_fish"))


def test_cifar_pickle_that_calls_code_is_refused(copy_of: CopyOf) -> None:
    data = copy_of("cifar10")
    payload = b"cos\nsystem\n(S'exit 1'\ntR."
    (data / "cifar-10-batches-py" / "test_batch").write_bytes(payload)
    with pytest.raises(DataError, match=r"test_batch.*os\.system"):
        open_split("cifar10", data, "test")


@pytest.mark.parametrize("key", CIFAR)
def test_image_folders_are_read_like_the_pickles(
    key: str, small_data: Path, tmp_path: Path
) -> None:
    for part, split in (("train", "trainval"), ("test", "test")):
        pickled = open_split(key, small_data, split)
        for i in range(len(pickled)):
            image, label = pickled[i]
            file = tmp_path / key / part / pickled.class_names[label] / f"{i:04d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.save(file)
        images = open_split(key, tmp_path, split)
        assert sorted(images.labels.tolist()) == sorted(pickled.labels.tolist())
        image, label = images[0]
        assert images.class_names[label] == Path(images.name(0)).parent.name


def test_the_order_of_cubs_lines_does_not_matter(small_data: Path, copy_of: CopyOf) -> None:
    data = copy_of("cub200")
    for listing in ("image_class_labels.txt", "train_test_split.txt"):
        path = data / "CUB_200_2011" / listing
        lines = path.read_text().splitlines()
        path.write_text("\n".join(random.Random(0).sample(lines, len(lines))) + "\n")
    for split in ("trainval", "test"):
        expected = open_split("cub200", small_data, split).fingerprint
        images = open_split("cub200", data, split)
        assert images.fingerprint == expected
        folders = [Path(images.name(i)).parent.name for i in range(len(images))]
        assert [images.class_names[label] for label in images.labels] == folders


EXCERPTS = {
    "dtd": ("dtd/dtd/labels/test1.txt", "banded/"),
    "pets": ("oxford-iiit-pet/annotations/test.txt", "Abyssinian_"),
    "food": ("food-101/meta/test.json", "apple_pie"),
}


@pytest.mark.parametrize("key", EXCERPTS)
def test_a_class_that_a_list_lacks_moves_no_other_label(key: str, copy_of: CopyOf) -> None:
    data, (listing, absent) = copy_of(key), EXCERPTS[key]
    file = data / listing
    if file.suffix == ".json":
        content = json.loads(file.read_text())
        del content[absent]
        file.write_text(json.dumps(content))
    else:
        stored = [line for line in file.read_text().splitlines() if not line.startswith(absent)]
        file.write_text("".join(f"{line}\n" for line in stored))
    train, test = (open_split(key, data, split) for split in ("train", "test"))
    assert test.class_names == train.class_names
    assert set(test.label_array.tolist()) == set(train.label_array.tolist()) - {0}


def test_classes_that_no_list_names_are_no_gap_in_the_labels(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    for split in ("trainval", "test"):
        file = data / "oxford-iiit-pet" / "annotations" / f"{split}.txt"
        lines = [line for line in file.read_text().splitlines() if "beagle" not in line]
        file.write_text("".join(f"{line}\n" for line in lines))
    images = open_split("pets", data, "test")
    breeds = [Path(images.name(i)).name.rpartition("_")[0] for i in range(len(images))]
    named = [images.class_names[label].replace(" ", "_") for label in images.label_array]
    assert named == [breed.title() for breed in breeds]


def test_an_excerpt_of_flowers_keeps_its_labels(copy_of: CopyOf) -> None:
    data = copy_of("flowers")
    mark_small(data, "flowers", Sizes(classes=5, counts={"trainval": 192, "test": 120}))
    report = check("flowers", data, decode=False)
    assert report.problems == ("6 complete classes found, 5 expected",)


def test_labels_beyond_the_classes_are_refused() -> None:
    for labels in ([0, 2], [-1, 0]):
        with pytest.raises(DataError, match=r"labels from .* but 2 classes"):
            image_files(Path("data"), ["a.jpg", "b.jpg"], labels, ["a", "b"])


def published(data: Path, part: str) -> list[str]:
    content = json.loads((data / "inat2019" / f"{part}.json").read_text())
    return [f"inat2019/{image['file_name']}" for image in content["images"]]


def names(data: Path, split: str) -> list[str]:
    images = open_split("inat1k", data, split)
    return [images.name(i) for i in range(len(images))]


def test_inat_uses_all_of_val(small_data: Path) -> None:
    train, val = (published(small_data, part) for part in ("train2019", "val2019"))
    test = names(small_data, "test")
    moved = sorted(set(test) - set(val))
    assert set(val) < set(test)
    assert len(moved) == 24
    ranks = seeded_ranks(encode_names(train), np.zeros(len(train), dtype=np.int64), RESPLIT_SEED)
    assert moved == sorted(name for name, rank in zip(train, ranks, strict=True) if rank < 24)
    assert sorted(names(small_data, "trainval")) == sorted(set(train) - set(moved))


def test_an_incomplete_annotation_file_is_an_error(copy_of: CopyOf) -> None:
    data = copy_of("inat1k")
    path = data / "inat2019" / "train2019.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "images": content["images"][:3]}))
    with pytest.raises(DataError, match="the annotation files are incomplete"):
        open_split("inat1k", data, "test")


def test_sampled_list_does_not_depend_on_the_folder(
    small_data: Path, tmp_path: Path, copy_of: CopyOf
) -> None:
    folder = tmp_path / "lists"
    here, there = (
        {part: open_split("inat1k", data, part) for part in ("trainval", "test")}
        for data in (small_data, copy_of("inat1k"))
    )
    first = write_list(folder, "inat1k-resplit0", here)
    file = folder / first["file"]
    lines = [f"{p} {name}" for p in ("trainval", "test") for name in names(small_data, p)]
    assert file.read_text().splitlines() == sorted(lines)
    previous = file.stat().st_mtime_ns
    assert write_list(folder, "inat1k-resplit0", there) == first
    assert file.stat().st_mtime_ns == previous
    assert write_list(folder, "inat1k-resplit0", {"test": here["test"].subset(range(5))}) != first
    assert len(list(folder.iterdir())) == 2
