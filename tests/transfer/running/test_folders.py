"""Folders of a request: what cannot be written is refused before any work."""

import os
from pathlib import Path

import pytest

from transfer.running.folders import FolderError, check_writable


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Folders that cannot be written, by the reason."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    return {
        "is a file": tmp_path / "file",
        "file is a file": tmp_path / "file" / "below",
        "leads nowhere": tmp_path / "link" / "below",
    }


@pytest.mark.parametrize("why", ["is a file", "file is a file", "leads nowhere"])
def test_a_place_that_can_be_no_folder_is_refused(why: str, places: dict[str, Path]) -> None:
    with pytest.raises(FolderError, match=rf"^--runs .*{why}\); .*give another --runs$"):
        check_writable(places[why], "--runs")


def test_a_folder_below_one_that_is_read_only_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(FolderError, match=r"cannot be written \(.* is read-only for you\)"):
        check_writable(tmp_path / "a" / "b", "--results")


def test_a_folder_that_may_not_be_searched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(FolderError, match=r"cannot be written \(Permission denied\)"):
        check_writable(tmp_path / "a", "--results")


def test_a_folder_that_can_be_created_is_accepted_and_not_created(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b", "--results")
    assert list(tmp_path.iterdir()) == []
