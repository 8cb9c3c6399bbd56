"""Sets that lie elsewhere: recognized by their content and linked."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transfer.getting.published import (
    val_images,
    write_archive,
    write_devkit,
    write_kaggles_list,
)
from transfer.__main__ import main
from transfer.datasets.check import check
from transfer.getting.assemble import candidate_folders, find_all
from transfer.getting.command import all_sources

WITH_FOLDERS = [key for key in all_sources() if key != "sbd"]


def link(data: Path, folder: Path, *names: str) -> int:
    return main(["get-data", *names, "--link", str(folder), "--data", str(data)])


def test_a_set_is_recognized_by_its_content_and_only_that_one(
    small_data: Path, tmp_path: Path
) -> None:
    for key in WITH_FOLDERS:
        anywhere = tmp_path / key / "my data" / "v1"
        anywhere.parent.mkdir(parents=True)
        anywhere.symlink_to(small_data / all_sources()[key].folder)
        assert find_all(tuple(all_sources().values()), anywhere) == {key: anywhere}


def test_the_whole_data_folder_is_found_and_linked(small_data: Path, data: Path) -> None:
    folders = tuple(all_sources().values())
    assert set(find_all(folders, small_data)) == set(WITH_FOLDERS)
    assert link(data, small_data, "cifar10", "dtd", "voc0712") == 0
    assert (data / "VOCdevkit" / "VOC2007").is_symlink()
    assert check("voc0712", data, decode=False).ok


def test_without_names_every_set_of_a_folder_is_linked(small_data: Path, data: Path) -> None:
    assert link(data, small_data / "VOCdevkit" / "VOC2007") == 0
    assert check("voc07", data, decode=False).ok


def flat_val(imagenet: Path, folder: Path) -> list[str]:
    """Copy ImageNet with its val images in one folder; return the wnid of each in its order."""
    shutil.copytree(imagenet / "train", folder / "train")
    images = val_images(imagenet)
    (folder / "val").mkdir()
    for image in images:
        shutil.copy(image, folder / "val")
    return [image.parent.name for image in images]


def put_packed_devkit(folder: Path, wnids: list[str], labels: list[str]) -> None:
    devkit = write_devkit(folder / "inner", wnids, labels)
    write_archive(folder / "ILSVRC2012_devkit_t12.tar.gz", {devkit.name: devkit})
    shutil.rmtree(folder / "inner")


def put_kaggles_list(folder: Path, wnids: list[str], labels: list[str]) -> None:
    write_kaggles_list(folder, labels)


def put_openmmlabs_list(folder: Path, wnids: list[str], labels: list[str]) -> None:
    lines = enumerate(labels, start=1)
    (folder / "meta").mkdir()
    (folder / "meta" / "val.txt").write_text(
        "".join(f"ILSVRC2012_val_{i:08d}.JPEG {wnids.index(wnid)}\n" for i, wnid in lines)
    )


@pytest.mark.parametrize(
    "put", [write_devkit, put_packed_devkit, put_kaggles_list, put_openmmlabs_list]
)
def test_flat_val_images_of_imagenet_are_sorted_by_any_usual_list(
    put: Callable[[Path, list[str], list[str]], object],
    small_data: Path,
    data: Path,
    tmp_path: Path,
) -> None:
    found = tmp_path / "ilsvrc"
    labels = flat_val(small_data / "imagenet", found)
    put(found, sorted(set(labels)), labels)
    assert link(data, found, "in1k") == 0
    assert check("in1k", data, decode=False).fingerprint == (
        check("in1k", small_data, decode=False).fingerprint
    )
    assert len(list((found / "val").glob("*.JPEG"))) == len(labels)


def test_flat_val_images_without_a_list_are_named(
    small_data: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat_val(small_data / "imagenet", tmp_path / "ilsvrc")
    assert link(data, tmp_path / "ilsvrc", "in1k") == 1
    assert "no list tells their classes" in capsys.readouterr().err
    assert not (data / "imagenet").exists()


@pytest.mark.parametrize(
    ("key", "places"),
    [
        ("in1k", {"train": "imagenet/train", "validation": "imagenet/val"}),
        (
            "in1k",
            {
                "ILSVRC/Data/CLS-LOC/train": "imagenet/train",
                "ILSVRC/Data/CLS-LOC/val": "imagenet/val",
            },
        ),
        (
            "coco17",
            {
                "annotations": "coco/annotations",
                "images/train2017": "coco/train2017",
                "images/val2017": "coco/val2017",
            },
        ),
    ],
)
def test_other_suites_folders_are_known(
    key: str, places: dict[str, str], small_data: Path, data: Path, tmp_path: Path
) -> None:
    for place, path in places.items():
        (tmp_path / "x" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / place).symlink_to(small_data / path)
    assert link(data, tmp_path / "x", key) == 0
    assert check(key, data, decode=False).ok


def test_folders_that_a_source_does_not_list_are_linked_too(
    small_data: Path, data: Path, tmp_path: Path
) -> None:
    for place in (small_data / "SUN397").iterdir():
        folder = tmp_path / "x" / ("Partitions" if place.suffix == ".txt" else "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / place.name).symlink_to(place)
    assert link(data, tmp_path / "x", "sun397") == 0
    assert check("sun397", data, decode=False).ok


def test_masks_are_never_written_into_a_found_voc(
    small_data: Path, data: Path, tmp_path: Path
) -> None:
    found = tmp_path / "voc"
    shutil.copytree(small_data / "VOCdevkit" / "VOC2012", found)
    before = sorted(found.rglob("*"))
    assert link(data, found, "voc12") == 0
    folder = data / "VOCdevkit" / "VOC2012"
    (folder / "ImageSets" / "Segmentation" / "trainaug.txt").write_text("")
    (folder / "new").mkdir()
    assert sorted(found.rglob("*")) == before


def test_a_search_ends_in_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path)
    assert len(list(candidate_folders(tmp_path))) == 3
