"""Folders of a request: what cannot be written is refused before any work, with the reason."""

import os
from pathlib import Path

import pytest

from transfer.datasets.folders import (
    MOST_BYTES,
    RESERVED,
    FolderError,
    check_row_name,
    check_writable,
)


def test_a_place_that_can_be_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for place, why in [
        ("file", "is a file"),
        ("file/below", "file is a file"),
        ("link/below", "leads nowhere"),
    ]:
        with pytest.raises(FolderError, match=rf"^--runs .*{why}\); .*give another --runs$"):
            check_writable(tmp_path / place, "--runs")


def test_a_folder_below_one_that_is_read_only_or_may_not_be_searched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
        with pytest.raises(FolderError, match="read-only"):
            check_writable(tmp_path / "a" / "b", "--results")
    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(FolderError, match="Permission denied"):
        check_writable(tmp_path / "a", "--results")


def test_a_folder_that_can_be_created_is_accepted_and_not_created(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b", "--results")
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "../outside": "holds a slash",
    "..": "starts with '.'",
    "/tmp/outside": "holds a slash",
    "a/b": "holds a slash",
    "a|b": "a bar",
    "": "is empty",
    "  ": "is empty",
    ".hidden": "starts with '.'",
    "-x": "starts with '-'",
    "a\nb": "cannot be seen",
    "a\0b": "cannot be seen",
    "caf\udce9": "not UTF-8",
    "x" * (MOST_BYTES + 1): "bytes, of which",
    "ü" * (MOST_BYTES // 2 + 1): "bytes, of which",
    "Tables": "means something else below the results",
    **dict.fromkeys(RESERVED, "means something else below the results"),
}


def test_a_name_that_can_be_no_folder_is_refused_with_what_to_do() -> None:
    for name, why in WRONG.items():
        with pytest.raises(ValueError, match=rf"^--name '.*{why}") as refusal:
            check_row_name(name, "jcl")
        assert len(str(refusal.value).encode()) < 300
        with pytest.raises(ValueError, match=rf"^the name .*{why}.* --name$"):
            check_row_name(name, name)
    for name in ["jcl", "MoCo v2+ (800)", "épreuve", "x" * MOST_BYTES, "a.b@1"]:
        check_row_name(name, "jcl")
