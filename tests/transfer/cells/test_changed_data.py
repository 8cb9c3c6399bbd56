"""State that may come from data that have changed does not survive the change."""

from pathlib import Path

import pytest

from transfer.cells.checked_data import without_state_of_changed_data
from transfer.datasets.unchanged import ChangedDataError, changed_data_error
from transfer.running.folders import Folders


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    folders = Folders(tmp_path / "data", tmp_path / "cache", tmp_path / "work")
    for file in (folders.cache / "features/old.npy", folders.work / "state", folders.work / "lock"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before")
    return folders


def fail(folders: Folders, error: Exception) -> None:
    """Write state, then end with an error."""
    with without_state_of_changed_data(folders):
        (folders.cache / "features/new.npy").write_text("made of other images")
        (folders.work / "state").write_text("trained on other images")
        (folders.work / "lock").write_text("")
        raise error


def files(folders: Folders) -> set[str]:
    return {file.name for place in (folders.cache, folders.work) for file in place.rglob("*.*")} | {
        file.name for file in folders.work.iterdir()
    }


def test_state_that_was_written_while_data_changed_is_deleted(folders: Folders) -> None:
    with pytest.raises(ChangedDataError):
        fail(folders, changed_data_error("coco17", "test: 1 image was replaced"))
    assert files(folders) == {"old.npy", "lock"}


def test_other_errors_keep_the_state_from_which_the_command_goes_on(folders: Folders) -> None:
    with pytest.raises(ValueError, match="another"):
        fail(folders, ValueError("another"))
    assert files(folders) == {"old.npy", "new.npy", "state", "lock"}
