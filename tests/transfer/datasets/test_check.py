"""The check finds every damage and names it; a whole set passes."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from PIL import Image

import transfer.datasets.check
import transfer.datasets.expected
from benchmarks.results.records import SMALL_DATA as WORDS_OF_DATA
from tests.transfer.datasets.conftest import CopyOf
from tests.transfer.detection.scenes import scene
from transfer.__main__ import main
from transfer.datasets.catalog import DATASETS, open_any, open_split
from transfer.datasets.check import Report, check, count_classes, register_subsets, render, require
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes, mark_small
from transfer.datasets.images import Images
from transfer.datasets.scenes import Scenes


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_generated_set_is_whole(small_data: Path, subtests: pytest.Subtests) -> None:
    for key in DATASETS:
        with subtests.test(key=key):
            for decode in (False, True):
                report = check(key, small_data, decode=decode)
                assert report.ok, report.problems
                assert report.small == "generated"
            assert require(key, small_data, tolerated=0) == check(key, small_data, decode=False)


def test_all_broken_images_are_named_in_any_block_of_files(
    copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer.datasets.check, "BLOCK", 7)
    data = copy_of("pets")
    trainval, test = open_split("pets", data, "trainval"), open_split("pets", data, "test")
    names = [trainval.name(i) for i in (0, 6, 7, 20, len(trainval) - 1)]
    for name in names:
        cut_in_half(data / name)
    names.append(test.name(9))
    (data / names[-1]).unlink()
    for decode in (False, True):
        report = check("pets", data, decode=decode)
        assert sorted(report.unreadable) == sorted(names)
        missing = [line for line in report.problems if "missing" in line]
        assert missing == [f"{names[-1]}: missing"]
        assert report.num_bad == len(names)
        assert [name for name in names if name not in render([report])] == []


def test_only_full_decoding_sees_damage_between_whole_ends(copy_of: CopyOf) -> None:
    data = copy_of("dtd")
    images = open_split("dtd", data, "test")
    images[1][0].save(data / images.name(1), "BMP")  # a sound file of another kind is no damage
    content = (data / images.name(0)).read_bytes()
    (data / images.name(0)).write_bytes(content[:20] + bytes(len(content) - 22) + content[-2:])
    assert check("dtd", data, decode=False).ok
    assert check("dtd", data, decode=True).unreadable == (images.name(0),)


@pytest.mark.parametrize(("suffix", "kind"), [(".jpg", "recoded"), (".png", "")])
def test_cifar_of_other_pixels_is_not_the_published_one(
    suffix: str, kind: str, tmp_path: Path
) -> None:
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "cifar10" / split / name
            folder.mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(folder / f"0{suffix}")
    report = check("cifar10", tmp_path, decode=False)
    assert report.small == kind
    assert any("published" in note for note in report.notes) == bool(kind)
    mark_small(tmp_path, "cifar10", Sizes(classes=2, counts={"trainval": 2, "test": 2}))
    assert check("cifar10", tmp_path, decode=False).small == f"{kind} excerpt".strip()


def test_tables_have_words_for_all_data_other_than_the_published() -> None:
    kinds = get_args(get_type_hints(Report)["small"])
    assert set(kinds) == {"", *WORDS_OF_DATA}


def test_a_missing_class_is_named(copy_of: CopyOf) -> None:
    data = copy_of("food")
    shutil.rmtree(data / "food-101" / "images" / "beignets")
    report = check("food", data, decode=False)
    # 32 in trainval, 20 in test
    assert report.problems == ("folder food-101/images/beignets is missing, 52 images",)
    assert len(report.unreadable) == 52
    copy_of("in1k")
    shutil.rmtree(data / "imagenet" / "val" / "n01440764")
    report = check("in1k", data, decode=False)
    assert "test: class n01440764 is in no image" in report.problems
    assert report.counts["test"] == (180, 200)
    (data / SMALL_DATA).unlink()
    for key, present, all_classes in (("in100", 8, 100), ("in1k", 9, 1000)):  # of the complete one
        report = check(key, data, decode=False)
        assert report.classes == (present, all_classes)
        absent = sum("trainval: class n" in line for line in report.problems)
        assert absent == all_classes - (8 if key == "in100" else 10)


def test_what_is_no_image_is_named_with_what_it_is(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    images = open_split("pets", data, "test")
    contents = {
        b"": "empty",
        b"\n<!DOCTYPE html>": "a page in HTML",
        b"PK\3\4": "the file starts with",
    }
    for i, content in enumerate(contents):
        (data / images.name(i)).write_bytes(content)
    problems = check("pets", data, decode=False).problems
    for i, (line, what) in enumerate(zip(problems, contents.values(), strict=True)):
        assert line.startswith(f"{images.name(i)}: ")
        assert what in line


@pytest.mark.parametrize(
    ("key", "name"),
    [("flowers", "flowers-102/setid.mat"), ("cars", "stanford_cars/devkit/cars_meta.mat")],
)
def test_a_cut_mat_file_is_named_wherever_it_ends(key: str, name: str, copy_of: CopyOf) -> None:
    data = copy_of(key)
    content = (data / name).read_bytes()
    for end in range(0, len(content), max(1, len(content) // 8)):
        (data / name).write_bytes(content[:end])
        assert any(name in line for line in check(key, data, decode=False).problems), end


def test_wrong_counts_are_named_and_tolerated_up_to_the_number(copy_of: CopyOf) -> None:
    data = copy_of("sun397")
    listing = data / "SUN397" / "Testing_01.txt"
    lines = listing.read_text().splitlines()
    listing.write_text("\n".join(lines[:-3]) + "\n")
    cut_in_half(data / "SUN397" / lines[0].lstrip("/"))
    report = check("sun397", data, decode=False)
    assert report.counts["test"] == (97, 100)
    assert (report.num_bad, len(report.unreadable)) == (4, 1)
    assert require("sun397", data, tolerated=4) == report
    with pytest.raises(DataError, match="4 images are missing") as error:
        require("sun397", data, tolerated=3)
    assert report.unreadable[0] in str(error.value)
    assert "97 images found, 100 expected" in str(error.value)
    assert f"register-subset sun397 --data {data} --tolerate 3" in str(error.value)


def test_no_subset_is_proposed_for_a_broken_image(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    cut_in_half(data / open_split("pets", data, "test").name(0))
    with pytest.raises(DataError) as error:
        require("pets", data, tolerated=0)
    assert "get-data pets" in str(error.value)
    assert "register-subset" not in str(error.value)


def test_an_excerpt_may_announce_only_some_splits(copy_of: CopyOf) -> None:
    data = copy_of("voc07")
    (data / "VOCdevkit" / "VOC2007" / "ImageSets" / "Main" / "train.txt").unlink()
    mark_small(data, "voc07", Sizes(classes=20, counts={"trainval": 200, "test": 160}))
    assert check("voc07", data, decode=False).ok
    assert "aircraft" in json.loads((data / SMALL_DATA).read_text())
    (data / SMALL_DATA).unlink()
    with pytest.raises(DataError, match="register-subset voc07"):
        require("voc07", data, tolerated=0)
    assert register_subsets(["voc07"], data, tolerated=0)["voc07"][0].counts == {
        "trainval": 200,
        "test": 160,
    }
    assert require("voc07", data, tolerated=0).ok


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        ("pets", {"train": 6 * 29, "val": 6 * 3, "trainval": 6 * 32, "test": 6 * 20}),
        ("dtd", {"train": 80, "val": 80, "trainval": 160, "test": 100}),  # has lists of both
        ("imagenet_c100", {"test": 8 * 5 * 19}),
    ],
)
def test_registered_subset_has_a_tenth_of_each_class_as_val(
    copy_of: CopyOf, key: str, counts: dict[str, int]
) -> None:
    data = copy_of(key)
    (data / SMALL_DATA).unlink()
    report = check(key, data, decode=False)
    assert not report.ok
    assert f"register-subset {key}\n" in render([report]) + "\n"
    assert register_subsets([key], data, tolerated=0)[key][0].counts == counts
    assert check(key, data, decode=False).ok


def test_subset_with_only_train_and_val_is_checked(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    mark_small(data, "pets", Sizes(classes=6, counts={"train": 144, "val": 48, "test": 120}))
    assert check("pets", data, decode=False).ok
    by_hand = (data / SMALL_DATA).read_text().replace("144", '"144"')
    (data / SMALL_DATA).write_text(by_hand)
    assert check("pets", data, decode=False).ok
    (data / open_split("pets", data, "train").name(0)).unlink()
    assert check("pets", data, decode=False).num_bad == 1
    mark_small(data, "pets", Sizes(classes=6, counts={"trainval": 192, "test": 120}))
    assert check("pets", data, decode=False).num_bad == 1
    with pytest.raises(DataError, match=r"does not say how many .*; enter val there"):
        open_split("pets", data, "train")


def test_an_excerpt_is_whole_once_it_is_announced(copy_of: CopyOf) -> None:
    data = copy_of("in1k")
    (data / SMALL_DATA).unlink()
    for folder in (data / "imagenet" / "train").iterdir():
        for file in sorted(folder.iterdir())[1:]:
            file.unlink()
    sizes, notes = register_subsets(["in1k"], data, tolerated=0)["in1k"]
    assert sizes.counts == {"trainval": 10, "test": 200}
    assert "no image left once 1 are held out" in notes[0]
    assert check("in1k", data, decode=False).ok
    copy_of("caltech101")
    (data / SMALL_DATA).unlink()
    for folder in (data / "caltech101" / "101_ObjectCategories").iterdir():
        for file in sorted(folder.iterdir())[20:]:
            file.unlink()
    with pytest.raises(DataError, match=r"first 'BACKGROUND_Google' with 20 images.* 30 are held"):
        register_subsets(["caltech101"], data, tolerated=0)
    counts = {"train": 50, "val": 25, "trainval": 75, "test": 25}
    mark_small(data, "caltech101", Sizes(classes=5, counts=counts))
    assert check("caltech101", data, decode=False).ok


def test_a_split_that_cannot_be_drawn_is_refused(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    counts = {"train": 0, "val": 192, "trainval": 192, "test": 120}
    mark_small(data, "pets", Sizes(classes=6, counts=counts))  # nothing is left for train
    report = check("pets", data, decode=False)
    assert "no image left once 32 are held out" in report.fatal[0]
    assert not report.ok
    assert not report.fit(10**6)
    with pytest.raises(DataError, match="no image left once 32 are held out"):
        require("pets", data, tolerated=10**6)


def test_lists_that_miss_images_of_train_are_refused(copy_of: CopyOf) -> None:
    data = copy_of("voc07")
    lists = data / "VOCdevkit" / "VOC2007" / "ImageSets" / "Main"
    for file in lists.glob("*train.txt"):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-3]))
    report = check("voc07", data, decode=False)
    assert report.problems == ("train: 97 images found, 100 expected",)
    assert (report.num_bad, report.fit(2), report.fit(3)) == (3, False, True)


def test_one_more_class_that_test_lacks_is_refused_unless_it_is_announced(
    copy_of: CopyOf,
) -> None:
    data = copy_of("in1k")
    shutil.rmtree(data / "imagenet" / "val" / "n01440764")
    mark_small(data, "in1k", Sizes(classes=9, counts={"trainval": 180, "test": 180}, drawn=True))
    report = check("in1k", data, decode=False)
    assert report.fatal == ("test: class n01440764 is in no image",)
    assert not report.fit(0)
    (data / SMALL_DATA).unlink()
    assert register_subsets(["in1k"], data, tolerated=0)["in1k"][0].classes == 9
    assert require("in1k", data, tolerated=0).ok


def test_splits_with_other_classes_are_refused(
    copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copy_of("pets")
    info = DATASETS["pets"]

    def read(data: Path, split: str, sizes: Sizes) -> Images:
        images = info.read(data, split, sizes)
        assert isinstance(images, Images)
        names = images.class_names if split != "test" else images.class_names[::-1]
        return Images(images.source, images.label_array, names)

    monkeypatch.setitem(DATASETS, "pets", replace(info, read=read))
    report = check("pets", data, decode=False)
    assert report.fatal == ("test: its classes differ from those of train: in another order",)
    with pytest.raises(DataError, match="in another order"):
        register_subsets(["pets"], data, tolerated=0)


def test_an_absent_set_is_reported_with_the_way_to_get_it(tmp_path: Path) -> None:
    reports = [check(key, tmp_path, decode=False) for key in DATASETS]
    assert not any(report.exists or report.ok for report in reports)
    text = render(reports)
    for key, info in DATASETS.items():
        assert info.how_to_get in text
        with pytest.raises(DataError) as error:
            require(key, tmp_path, tolerated=10**9)
        assert info.folder in str(error.value)
        assert info.how_to_get in str(error.value)


def write_class_folders(folder: Path, sizes: dict[str, int]) -> None:
    """Write a class folder for each name, with different images."""
    for k, (name, count) in enumerate(sizes.items()):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            image = Image.new("RGB", (8, 8), (k, i, 0))
            image.save(folder / name / f"image_{i + 1:04d}.png")


CALTECH = "caltech101/101_ObjectCategories"


def test_excerpt_with_a_class_that_is_too_small_is_refused(tmp_path: Path) -> None:
    write_class_folders(tmp_path / CALTECH, {"ant": 45, "bass": 45, "bonsai": 25})
    with pytest.raises(DataError, match=r"'bonsai' with 25 images.* 30 are held out"):
        register_subsets(["caltech101"], tmp_path, tolerated=0)
    assert not (tmp_path / SMALL_DATA).exists()


@pytest.mark.parametrize(
    ("key", "folder"), [("caltech101", CALTECH), ("birdsnap", "birdsnap/images")]
)
def test_described_excerpt_is_ok_and_stays_the_same(key: str, folder: str, tmp_path: Path) -> None:
    write_class_folders(tmp_path / folder, {"ant": 45, "bass": 41, "bonsai": 32})
    first = register_subsets([key], tmp_path, tolerated=0)
    content = (tmp_path / SMALL_DATA).read_bytes()
    fingerprints = check(key, tmp_path, decode=False).fingerprints
    assert check(key, tmp_path, decode=False).ok
    assert register_subsets([key], tmp_path, tolerated=0) == first
    assert (tmp_path / SMALL_DATA).read_bytes() == content
    assert check(key, tmp_path, decode=False).fingerprints == fingerprints


def test_excerpt_whose_test_lacks_classes_is_ok_once_described(copy_of: CopyOf) -> None:
    data = copy_of("in1k")
    (data / SMALL_DATA).unlink()
    for folder in sorted((data / "imagenet" / "val").iterdir())[2:]:
        shutil.rmtree(folder)
    sizes, _ = register_subsets(["in1k"], data, tolerated=0)["in1k"]
    assert (sizes.classes, sizes.counts["val"]) == (2, 30)  # a tenth of each of ten classes
    assert check("in1k", data, decode=False).ok


@pytest.mark.parametrize("difficult", [False, True])
def test_excerpt_of_difficult_objects_alone_is_refused(difficult: bool, tmp_path: Path) -> None:
    sampled = scene("a.jpg", "a", 60, 60, [[0, 0, 9, 9]], [1], aside=np.array([difficult]))
    pools = {"test": Scenes(tmp_path, [sampled], ["cat", "dog"])}
    expected = ["test: no class is in any image"] if difficult else []
    assert count_classes("voc0712", pools, 20, excerpt=True) == (2, expected)


def test_nothing_is_written_if_one_of_several_sets_cannot_be_read(copy_of: CopyOf) -> None:
    data = copy_of("cifar10")
    copy_of("cars")
    content = (data / SMALL_DATA).read_bytes()
    batch = data / "cifar-10-batches-py" / "data_batch_1"
    batch.write_bytes(batch.read_bytes()[:2000])
    assert main(["register-subset", "cars", "cifar10", "--data", str(data)]) == 2
    assert (data / SMALL_DATA).read_bytes() == content


def test_excerpt_with_a_broken_image_is_described_if_tolerated(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    (data / SMALL_DATA).unlink()
    name = open_split("pets", data, "test").name(0)
    cut_in_half(data / name)
    with pytest.raises(DataError, match="--tolerate") as error:
        register_subsets(["pets"], data, tolerated=0)
    assert name in str(error.value)
    assert register_subsets(["pets"], data, tolerated=1)["pets"][1][0].startswith(name)
    assert require("pets", data, tolerated=1).num_bad == 1


def test_an_empty_folder_is_reported_with_the_command(tmp_path: Path) -> None:
    for key, info in DATASETS.items():
        (tmp_path / info.folder).mkdir(parents=True, exist_ok=True)
        is_offered = any(source.access == "download" for source in info.sources)
        command = f"get-data {key} --data {tmp_path}"
        advice = re.escape(command if is_offered else info.how_to_get)
        with pytest.raises(DataError, match=f"does not exist or is empty.*{advice}"):
            require(key, tmp_path, tolerated=0)
        with pytest.raises(DataError, match=advice):
            open_any(key, tmp_path, "test")
