"""The check finds repeated images, within and between splits."""

import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import transfer.datasets.repeated
from tests.transfer.datasets.conftest import CopyOf
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate
from transfer.cells.request import Settings
from transfer.datasets.catalog import open_any, open_split
from transfer.datasets.check import check, require
from transfer.datasets.expected import DataError
from transfer.encoders.encoder import Encoder
from transfer.record import COPIED

PETS = "oxford-iiit-pet/annotations"


def change(file: Path, change_lines: Callable[[list[str]], list[str]]) -> None:
    file.write_text("".join(change_lines(file.read_text().splitlines(keepends=True))))


def copy_to_test(data: Path, key: str, number: int) -> list[str]:
    """Give test images the content of training images of their class.

    Return their names.
    """
    trainval, test = open_split(key, data, "trainval"), open_split(key, data, "test")
    labels = trainval.label_array.tolist()
    for i in range(number):
        source = trainval.name(labels.index(test.label_array[i], 3 * i))
        shutil.copy(data / source, data / test.name(i))
    return [test.name(i) for i in range(number)]


@pytest.mark.parametrize(
    ("key", "train", "test"),
    [
        ("aircraft", "data/images_variant_trainval.txt", "data/images_variant_test.txt"),
        ("dtd", "dtd/labels/train1.txt", "dtd/labels/test1.txt"),
        ("pets", "annotations/trainval.txt", "annotations/test.txt"),
        ("sun397", "Training_01.txt", "Testing_01.txt"),
    ],
)
def test_a_training_image_in_the_test_list_is_named(
    key: str, train: str, test: str, copy_of: CopyOf
) -> None:
    data = copy_of(key)
    folder = data / Path(open_any(key, data, "test").name(0)).parts[0]
    first = (folder / train).read_text().splitlines(keepends=True)[0]
    change(folder / test, lambda lines: [first, *lines[1:]])
    report = check(key, data, decode=False)
    shared = [line for line in report.problems if "1 image is also in trainval" in line]
    assert first.split()[0].strip("/") in shared[0]
    assert not report.fit(0)


def test_imagenet_names_identify_images_in_any_folder(copy_of: CopyOf) -> None:
    data = copy_of("in1k")
    source = next((data / "imagenet/train/n01440764").iterdir())
    old = next((data / "imagenet/val/n01440764").iterdir())
    old.replace(old.with_name(source.name))
    (line,) = check("in1k", data, decode=False).problems
    assert line.startswith("test: 1 image is also in trainval, first imagenet/val/n01440764/")
    assert f"imagenet/train/n01440764/{source.name}" in line


def test_equal_names_of_other_sets_are_different_images(copy_of: CopyOf) -> None:
    # both folders begin with 00001.jpg, as published
    assert check("cars", copy_of("cars"), decode=False).ok


def test_a_line_twice_is_named_and_tolerated(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    change(data / PETS / "test.txt", lambda lines: [*lines[:-1], lines[0]])
    report = check("pets", data, decode=False)
    name = open_split("pets", data, "test").name(0)
    assert report.problems == (f"test: 1 image is listed more than once, first {name}",)
    assert (report.fit(0), report.fit(1)) == (False, True)


def test_few_copies_under_other_names_are_a_remark(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    (name,) = copy_to_test(data, "pets", 1)
    report = check("pets", data, decode=False)
    assert report.ok
    assert report.copied_percent == pytest.approx(100 / 120)
    assert "1 of 120 images (0.833 %) are copies" in report.notes[0]
    assert name in report.notes[1]


def test_many_copies_are_refused_and_tolerated_by_number(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    names = copy_to_test(data, "pets", 2)
    with pytest.raises(DataError, match=r"2 of 120 images \(1.67 %\) are copies .*first") as error:
        require("pets", data, tolerated=1)
    assert names[0] in str(error.value)
    assert require("pets", data, tolerated=2).num_bad == 2


def test_only_files_of_equal_ends_and_size_are_read_whole(
    copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copy_of("dtd")
    copy_to_test(data, "dtd", 1)
    read: list[Path] = []

    def read_bytes(file: Path) -> bytes:
        read.append(file)
        return file.read_bytes()

    monkeypatch.setattr(transfer.datasets.repeated, "read_bytes", read_bytes)
    check("dtd", data, decode=False)
    assert len(read) == 2


def test_equal_ends_of_other_files_are_no_copies(copy_of: CopyOf) -> None:
    data = copy_of("dtd")
    names = copy_to_test(data, "dtd", 3)
    for name in names:
        content = bytearray((data / name).read_bytes())
        content[30] ^= 1
        (data / name).write_bytes(content)
    assert check("dtd", data, decode=False).copied_percent == 0


def test_copies_in_arrays_are_found_by_their_pixels(copy_of: CopyOf) -> None:
    data = copy_of("cifar10")
    train, test = (data / "cifar-10-batches-py" / name for name in ("data_batch_1", "test_batch"))
    source, target = (pickle.loads(file.read_bytes()) for file in (train, test))
    target["data"][:3] = source["data"][:3]
    test.write_bytes(pickle.dumps(target))
    report = check("cifar10", data, decode=False)
    assert "3 of 120 images (2.5 %) are copies" in report.problems[0]
    assert "test_batch#0 = cifar-10-batches-py/data_batch_1#0" in report.problems[0]


def test_the_record_keeps_the_share_of_copies(
    copy_of: CopyOf, small_backbone: Encoder, settings: Settings
) -> None:
    data = copy_of("pets")
    copy_to_test(data, "pets", 1)
    cell = Cell.with_backbone(
        task="pets_knn",
        backbone=small_backbone,
        seed=0,
        settings=replace(settings, data=data),
    )
    assert evaluate(cell).details[COPIED] == {"pets": pytest.approx(100 / 120)}
