"""Unwritable folders and impossible row names are refused."""

import os
from pathlib import Path

import pytest

from transfer.datasets.folders import (
    MAX_NAME_BYTES,
    RESERVED,
    FolderError,
    check_row_name,
    check_writable,
)


def test_a_folder_below_one_that_is_read_only_or_may_not_be_searched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
        with pytest.raises(FolderError, match="no write permission"):
            check_writable(tmp_path / "a" / "b", "--results")
    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(FolderError, match="Permission denied"):
        check_writable(tmp_path / "a", "--results")


WRONG = (
    *("../outside", "..", "/tmp/outside", "a/b", "a|b", "a\\b", "", "  ", " a", ".hidden", "-x"),
    *("a\nb", "a\0b", "caf\udce9", "x" * (MAX_NAME_BYTES + 1), "ü" * (MAX_NAME_BYTES // 2 + 1)),
    *("Tables", *RESERVED),
)


def test_a_name_that_can_be_no_folder_is_refused_with_what_to_do() -> None:
    for name in WRONG:
        with pytest.raises(ValueError, match=r"^--name '.*choose another"):
            check_row_name(name, "jcl")
        with pytest.raises(ValueError, match=r"^the name .* --name"):
            check_row_name(name, name)
    for name in ["jcl", "MoCo v2+ (800)", "épreuve", "x" * MAX_NAME_BYTES, "a.b@1"]:
        check_row_name(name, "jcl")
