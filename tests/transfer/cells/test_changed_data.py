"""Intermediate files of changed data are deleted."""

import os
from pathlib import Path

import pytest

from pretrain.running.stop import Stopped
from transfer.cells import state
from transfer.cells.cell import Cell
from transfer.datasets.catalog import open_split
from transfer.datasets.expected import DataError
from transfer.datasets.images import ChangedDataError, Images, unchanged


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


def test_a_failure_is_noted_without_its_data(own_cell: Cell) -> None:
    (own_cell.settings.data / "small-data.json").write_text("{torn")
    state.fail(own_cell, DataError("torn"))
    assert state.failure(own_cell) == "DataError: torn"
