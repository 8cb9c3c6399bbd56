"""A set appears under its name when it is whole, got or linked from where it is recognized."""

import errno
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError
from tests.transfer.getting.conftest import Publish, Server
from tests.transfer.getting.published import (
    val_images,
    write_archive,
    write_devkit,
    write_kaggles_list,
)
from transfer.__main__ import main
from transfer.datasets.check import check
from transfer.datasets.expected import DataError
from transfer.getting import assemble
from transfer.getting.assemble import WORK, Getting, candidate_folders, find_all, get_source
from transfer.getting.command import all_sources


class KilledError(Exception):
    """Stands for the end of the process at this point."""


FULL = OSError(errno.ENOSPC, "No space left on device")
ENDS: dict[str, tuple[Any, int, Exception]] = {
    "download": (assemble, 2, KilledError()),
    "unpack": (assemble, 2, KilledError()),
    "exit_if_requested": (stop, 21, KilledError()),  # within an archive
    "_stage": (assemble, 1, KilledError()),
    "find_all": (assemble, 1, KilledError()),
    "_require_whole": (assemble, 1, KilledError()),
    "rename": (Path, 1, FULL),
}
"""Functions, where they are, and the call of each at which a run ends."""


@pytest.mark.parametrize("step", ENDS)
def test_a_run_that_ends_at_any_step_goes_on(
    step: str, publish: Publish, data: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    source, (place, last, error), calls = publish("pets"), ENDS[step], count(1)
    real = getattr(place, step)

    def end_at_the_last_call(*words: object) -> object:
        if next(calls) == last:
            raise error
        return real(*words)

    with monkeypatch.context() as patch:
        patch.setattr(place, step, end_at_the_last_call)
        with pytest.raises(WriteError if error is FULL else KilledError):
            get_source(source, Getting(data=data))
    assert not (data / source.folder).exists()
    get_source(source, Getting(data=data))
    assert check("pets", data, decode=True).ok
    assert not (data / WORK).exists()
    assert len(server.requests) == len(source.archives)


def test_a_file_in_the_place_of_an_archive_is_verified(
    publish: Publish, data: Path, tmp_path: Path
) -> None:
    source = publish("dtd")
    name = source.archives[0].name
    own, earlier = tmp_path / "own.tar.gz", data / "archives" / "dtd" / name
    earlier.parent.mkdir(parents=True)
    for file in (own, earlier):
        file.write_bytes(b"?" * source.archives[0].num_bytes)
    for getting in (
        Getting(data=data, local={"dtd": {name: own}}, only_local=True),
        Getting(data=data),
    ):
        with pytest.raises(DataError, match="not the published file"):
            get_source(source, getting)
    assert own.exists()
    assert not (data / source.folder).exists()


def test_a_second_process_waits_and_finds_the_set(
    publish: Publish, data: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    source = publish("dtd")
    server.cuts["dtd/dtd-r1.0.1.tar.gz"] = [1000]
    server.released.clear()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(get_source, source, Getting(data=data))
        while not server.requests:
            time.sleep(0.01)
        second = threads.submit(get_source, source, Getting(data=data))
        while "another process gets it" not in capsys.readouterr().err:
            time.sleep(0.01)
        server.released.set()
        assert first.result() is not None
        assert second.result() is None  # there was nothing left to do
    assert not (data / WORK).exists()


def test_an_incomplete_set_appears_only_if_it_is_tolerated(
    publish: Publish, small_data: Path, data: Path, tmp_path: Path
) -> None:
    source, found = publish("aircraft"), tmp_path / "planes"
    shutil.copytree(small_data / source.folder, found)
    next((found / "data" / "images").iterdir()).unlink()
    with pytest.raises(DataError, match="not whole"):
        get_source(source, Getting(data=data, found={"aircraft": found}))
    assert not (data / source.folder).exists()
    get_source(source, Getting(data=data))  # the failed link does not count
    assert not (data / source.folder).is_symlink()
    assert check("aircraft", data, decode=False).ok
    shutil.rmtree(data / source.folder)
    words = ["get-data", "aircraft", "--link", str(found), "--data", str(data)]
    assert main(words) == 1
    assert main([*words, "--tolerate", "1"]) == 0


def test_what_killed_runs_left_goes_at_the_next(publish: Publish, data: Path) -> None:
    source = publish("dtd")
    get_source(source, Getting(data=data))
    (data / WORK / "dtd" / "done").mkdir(parents=True)  # killed between its last two steps
    get_source(source, Getting(data=data, remove_archives=True))
    assert {path.name for path in data.iterdir()} == {"dtd", "small-data.json"}
    assert not list(data.rglob(".*"))


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


@pytest.mark.parametrize("wrong", ["n/1", "x01440764", "n01440764/.."])
def test_a_list_of_imagenet_names_no_folders_of_its_own(
    wrong: str, small_data: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = flat_val(small_data / "imagenet", tmp_path / "ilsvrc")
    write_kaggles_list(tmp_path / "ilsvrc", [*labels[:-1], wrong])
    assert link(data, tmp_path / "ilsvrc", "in1k") == 1
    assert f"{wrong!r} in a list is no class" in capsys.readouterr().err
    assert not (data / "imagenet").exists()


KAGGLES = "ILSVRC/Data/CLS-LOC"


@pytest.mark.parametrize(
    ("key", "places"),
    [
        ("in1k", {"train": "imagenet/train", "validation": "imagenet/val"}),
        ("in1k", {f"{KAGGLES}/train": "imagenet/train", f"{KAGGLES}/val": "imagenet/val"}),
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
