"""Results from changing data are never used, however a process ends."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

import transfer.frozen.extraction
from pretrain.running.stop import Stopped
from transfer.cells import state
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate
from transfer.datasets.catalog import open_split
from transfer.datasets.expected import DataError
from transfer.datasets.images import ChangedDataError, ImageFiles, Images, unchanged
from transfer.frozen.network import forward as forward_pass


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer.frozen.extraction, "IMAGES_PER_CHUNK", 48)


def replace_images(data: Path) -> None:
    """Give each image the content of another one."""
    files = sorted(data.glob("stanford_cars/cars_*/*.jpg"))
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[7:] + contents[:7], strict=True):
        file.write_bytes(content)


def restore_images(data: Path) -> None:
    """Put the images back with their times, as tar does."""
    for file in (data.parent / "original").glob("stanford_cars/cars_*/*.jpg"):
        shutil.copy2(file, data / file.relative_to(data.parent / "original"))


def features(cell: Cell) -> dict[str, bytes]:
    evaluate(cell)
    files = cell.folders.cache.glob("features/*.npy")
    return {file.name: np.load(file).tobytes() for file in files}


def moved_and_back(data: Path) -> Iterator[None]:
    """Put another folder in the set's place.

    None of its files gets another time by that.
    """
    shutil.copytree(data / "stanford_cars", data / "other")
    (data / "stanford_cars").rename(data / "away")
    (data / "other").rename(data / "stanford_cars")
    replace_images(data)
    yield
    (data / "stanford_cars").rename(data / "other")
    (data / "away").rename(data / "stanford_cars")
    yield


def replaced_and_restored(data: Path) -> Iterator[None]:
    """Replace the contents of the images, then restore them."""
    replace_images(data)
    yield
    restore_images(data)
    yield


@pytest.mark.parametrize("change", [replaced_and_restored, moved_and_back])
@pytest.mark.parametrize("error", [DataError("no image"), Stopped(75)])
def test_no_row_of_replaced_images_survives_another_error(
    own_cell: Cell,
    change: Callable[[Path], Iterator[None]],
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = own_cell.settings.data.parent / "undisturbed"
    expected = features(
        own_cell.with_request(settings=replace(own_cell.settings, runs=runs), seed=1)
    )
    changes, calls = change(own_cell.settings.data), count(1)

    def forward(network: nn.Module, pixels: Tensor) -> Tensor:
        match next(calls):
            case 1:
                next(changes)
            case 4:
                raise error
        return forward_pass(network, pixels)

    with monkeypatch.context() as patch:
        patch.setattr(transfer.frozen.extraction, "forward", forward)
        with pytest.raises(type(error)):
            evaluate(own_cell)
    next(changes)
    assert features(own_cell) == expected


class WorkFile:
    """Work in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text("step 5")

    def discard(self) -> None:
        self.path.unlink()


@pytest.fixture
def images(own_cell: Cell) -> Images:
    return open_split("cars", own_cell.settings.data, "test")


def first_file(images: Images) -> Path:
    return images.files[0].folder / images.name(0)


def test_stop_keeps_what_was_made_of_unchanged_data(images: Images, tmp_path: Path) -> None:
    workspace = WorkFile(tmp_path / "heads.stage")
    with pytest.raises(Stopped), unchanged(images, workspace):
        raise Stopped(75)
    assert workspace.path.exists()


def test_changed_data_end_a_block_and_delete_its_work(images: Images, tmp_path: Path) -> None:
    workspace, file = WorkFile(tmp_path / "heads.stage"), first_file(images)
    with (
        pytest.raises(ChangedDataError, match=rf"{images.name(0)} has"),
        unchanged(images, workspace),
    ):
        file.write_bytes(file.read_bytes())
    assert not workspace.path.exists()


def test_permissions_links_and_access_times_are_no_change(images: Images, tmp_path: Path) -> None:
    workspace, file = WorkFile(tmp_path / "heads.stage"), first_file(images)
    with unchanged(images, workspace):
        file.chmod(0o600)
        (tmp_path / "link").hardlink_to(file)
        os.utime(file, ns=(0, file.stat().st_mtime_ns))
    assert workspace.path.exists()


def stop_after(action: Callable[[], object]) -> None:
    action()
    raise Stopped(75)


def test_data_that_are_away_for_a_while_leave_the_work(images: Images, tmp_path: Path) -> None:
    workspace, folder = WorkFile(tmp_path / "heads.stage"), images.files[0].folder
    with pytest.raises(Stopped), unchanged(images, workspace):
        stop_after(partial(folder.rename, folder.with_name("away")))
    folder.with_name("away").rename(folder)
    assert workspace.path.exists()


@pytest.mark.parametrize("error", [OSError(errno.ESTALE, "stale"), OSError(errno.EIO, "broken")])
def test_a_stop_counts_more_than_a_disk_that_fails_after_it(
    images: Images, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise error

    with pytest.raises(Stopped), unchanged(images):
        stop_after(partial(monkeypatch.setattr, ImageFiles, "state", fail))


def test_a_failure_is_noted_without_its_data(own_cell: Cell) -> None:
    (own_cell.settings.data / "small-data.json").write_text("{torn")
    state.fail(own_cell, DataError("torn"))
    assert state.failure(own_cell) == "DataError: torn"
