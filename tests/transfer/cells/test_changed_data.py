"""Whatever ends a process while data change, nobody finds what it made of them."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

import transfer.frozen.extraction
from pretrain.running.stop import Stopped
from transfer.cells.checked_data import checked_data
from transfer.cells.execution import evaluate
from transfer.cells.request import Cell
from transfer.datasets.expected import DataError
from transfer.datasets.unchanged import (
    ChangedDataError,
    UnprovenFile,
    current_state,
    prove,
    proving,
)
from transfer.frozen.network import forward as forward_pass


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer.frozen.extraction, "IMAGES_PER_PART", 48)


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
    """Put another folder in the set's place; none of its files gets another time by that."""
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
    expected = features(replace(own_cell, settings=replace(own_cell.settings, runs=runs), seed=1))
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


def test_a_stop_publishes_what_was_made_of_unchanged_data(own_cell: Cell) -> None:
    path = own_cell.settings.data.parent / "heads-1.pt"
    path.write_text("of an earlier version")
    with checked_data(("cars",), own_cell.folders, 0, since_s=0):
        file = UnprovenFile(path)
        assert file.newest == path
        file.private.write_text("step 5")
        with pytest.raises(Stopped), proving(file):
            raise Stopped(75)
    assert (path.read_text(), file.private.exists()) == ("step 5", False)


def test_what_a_kill_leaves_counts_for_files_of_the_same_size_and_time_only(own_cell: Cell) -> None:
    data = own_cell.settings.data
    path, states = data.parent / "training.stage", []
    for change in (lambda _: None, lambda _: None, replace_images, restore_images):
        change(data)
        with checked_data(("cars",), own_cell.folders, 0, since_s=1e18):
            file = UnprovenFile(path)
            states.append((current_state(), file.newest.exists()))
            file.private.write_text("as after kill -9, which no comparison follows")
    assert [found for _, found in states] == [False, True, False, True]
    assert len({state for state, _ in states}) == 2


def test_changed_data_end_a_block_and_drop_its_file(own_cell: Cell) -> None:
    data = own_cell.settings.data
    with checked_data(("cars",), own_cell.folders, 0, since_s=0):
        file = UnprovenFile(data.parent / "work.stage")
        file.private.write_text("work")
        image = min(data.glob("stanford_cars/cars_test/*.jpg"))
        image.write_bytes(image.read_bytes())
        with pytest.raises(ChangedDataError, match="were written meanwhile"):
            prove(file)
    assert not file.newest.exists()
