"""A dataset appears under its name only when it is complete."""

import errno
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from transfer.datasets.check import check
from transfer.datasets.expected import DataError
from transfer.datasets.imagenet.imagenet import sort_val_images
from transfer.getting import sources
from transfer.getting.command import all_sources
from transfer.getting.sources import WORK, Getting, files_by_name, get_source


class KilledError(Exception):
    """Stands for the end of the process at this point."""


FULL = OSError(errno.ENOSPC, "No space left on device")
ENDS: dict[str, tuple[Any, int, Exception]] = {
    "download": (sources, 2, KilledError()),
    "unpack": (sources, 2, KilledError()),
    "exit_if_requested": (stop, 21, KilledError()),  # within an archive
    "_stage": (sources, 1, KilledError()),
    "_require_complete": (sources, 1, KilledError()),
    "rename": (Path, 1, FULL),
}
"""Functions, their modules, and the call at which a run ends."""


@pytest.mark.parametrize("step", ENDS)
def test_a_run_that_ends_at_any_step_goes_on(
    step: str, publish: Publish, data: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    source, (location, last, error), calls = publish("pets"), ENDS[step], count(1)
    real = getattr(location, step)

    def end_at_the_last_call(*words: object) -> object:
        if next(calls) == last:
            raise error
        return real(*words)

    with monkeypatch.context() as patch:
        patch.setattr(location, step, end_at_the_last_call)
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
    ours, earlier = tmp_path / "own.tar.gz", data / "archives" / "dtd" / name
    earlier.parent.mkdir(parents=True)
    for file in (ours, earlier):
        file.write_bytes(b"?" * source.archives[0].num_bytes)
    for getting in (
        Getting(data=data, local={name: [ours]}),
        Getting(data=data),
    ):
        with pytest.raises(DataError, match="not the published file"):
            get_source(source, getting)
    assert ours.exists()
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
        while "waiting for another process" not in capsys.readouterr().err:
            time.sleep(0.01)
        server.released.set()
        assert first.result() is not None
        assert second.result() is None  # there was nothing left to do
    assert not (data / WORK).exists()


def test_an_incomplete_set_appears_only_if_it_is_tolerated(
    publish: Publish, small_data: Path, data: Path, tmp_path: Path
) -> None:
    publish("aircraft")
    planes = tmp_path / "fgvc-aircraft-2013b"
    shutil.copytree(small_data / planes.name, planes)
    next((planes / "data" / "images").iterdir()).unlink()
    write_archive(tmp_path / "own" / f"{planes.name}.tar.gz", {planes.name: planes})
    source = all_sources()["aircraft"]
    archive = replace(source.archives[0], exact=False, checksum="")
    source = replace(source, archives=(archive,))
    local = files_by_name(tmp_path / "own")
    with pytest.raises(DataError, match="incomplete"):
        get_source(source, Getting(data=data, local=local))
    assert not (data / source.folder).exists()
    get_source(source, Getting(data=data, local=local, tolerate=1))
    assert (data / source.folder).exists()


def test_what_a_killed_run_left_goes_at_the_next(publish: Publish, data: Path) -> None:
    source = publish("dtd")
    get_source(source, Getting(data=data))
    (data / WORK / "dtd" / "done").mkdir(parents=True)  # killed between its last two steps
    get_source(source, Getting(data=data))
    assert {path.name for path in data.iterdir()} == {"archives", "dtd", "small-data.json"}
    assert not list(data.rglob(".*"))


def test_of_files_with_one_name_that_of_the_published_size_is_taken(tmp_path: Path) -> None:
    source = all_sources()["pets"]
    archive = replace(source.archives[0], num_bytes=3)
    for folder, content in (("a", b"1"), ("b", b"123"), ("c", b"12")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / archive.name).write_bytes(content)
    getting = Getting(data=tmp_path, local=files_by_name(tmp_path))
    assert getting.file(source, archive) == tmp_path / "b" / archive.name


def test_sets_without_their_folder_in_the_archives_are_named(data: Path, tmp_path: Path) -> None:
    source = all_sources()["cifar10"]
    archive = replace(source.archives[0], exact=False, checksum="")
    (tmp_path / "x").touch()
    write_archive(tmp_path / "own" / archive.name, {"cifar/x": tmp_path / "x"})
    getting = Getting(data=data, local=files_by_name(tmp_path / "own"))
    with pytest.raises(DataError, match="cifar-10-batches-py is not in them"):
        get_source(replace(source, archives=(archive,)), getting)


def flat_val(imagenet: Path, raw: Path) -> list[str]:
    """Copy the val images of ImageNet to one folder.

    Return the wnid of each in its order.
    """
    images = val_images(imagenet)
    (raw / "val").mkdir(parents=True)
    for image in images:
        shutil.copy(image, raw / "val")
    return [image.parent.name for image in images]


@pytest.mark.parametrize("devkit", [True, False])
def test_flat_val_images_are_sorted_by_the_published_lists(
    devkit: bool, small_data: Path, tmp_path: Path
) -> None:
    labels = flat_val(small_data / "imagenet", tmp_path)
    if devkit:
        write_devkit(tmp_path, sorted(set(labels)), labels)
    else:
        write_kaggles_list(tmp_path, labels)
    sort_val_images(tmp_path)
    expected = {f"{file.parent.name}/{file.name}" for file in val_images(small_data / "imagenet")}
    result = {f"{file.parent.name}/{file.name}" for file in (tmp_path / "val").glob("*/*")}
    assert result == expected


def test_flat_val_images_that_no_list_names_are_counted(small_data: Path, tmp_path: Path) -> None:
    labels = flat_val(small_data / "imagenet", tmp_path)
    write_kaggles_list(tmp_path, labels[:-1])
    with pytest.raises(DataError, match=rf"1 of {len(labels)} images"):
        sort_val_images(tmp_path)
