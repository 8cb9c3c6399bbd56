"""CIFAR-10 and CIFAR-100 from the published pickles and from image folders."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from transfer.datasets.catalog import open_split
from transfer.datasets.expected import DataError


@pytest.mark.parametrize(
    ("key", "batches", "field"),
    [
        ("cifar10", [f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)], "labels"),
        ("cifar100", ["cifar-100-python/train"], "fine_labels"),
    ],
)
def test_cifar_pixels_and_labels_are_those_of_the_pickles(
    key: str, batches: list[str], field: str, small_data: Path
) -> None:
    contents = [pickle.loads((small_data / batch).read_bytes()) for batch in batches]
    images = open_split(key, small_data, "trainval")
    assert images.labels.tolist() == [label for batch in contents for label in batch[field]]
    for i in (0, len(images) - 1):
        row = contents[0 if i == 0 else -1]["data"][i and -1]
        x, y = 5, 9
        assert images[i][0].getpixel((x, y)) == tuple(row[y * 32 + x :: 32 * 32])
    files = [name for batch in contents for name in batch["filenames"]]
    named = [images.class_names[label] for label in images.labels]
    assert named == [file.rsplit("_s_", 1)[0] for file in files]


def test_cifar_pickle_that_calls_code_is_refused(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("cifar10")
    payload = b"cos\nsystem\n(S'exit 1'\ntR."
    (data / "cifar-10-batches-py" / "test_batch").write_bytes(payload)
    with pytest.raises(DataError, match=r"test_batch.*os\.system"):
        open_split("cifar10", data, "test")


@pytest.mark.parametrize("key", ["cifar10", "cifar100"])
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
        assert image.size == (32, 32)
