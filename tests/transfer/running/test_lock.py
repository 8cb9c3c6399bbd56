"""A folder has one owner, and a file system that cannot say so is named."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from transfer.frozen.feature_file import unfinished_rows
from transfer.running.atomic_files import WriteError
from transfer.running.lock import BusyError, lock_folder


def test_a_locked_folder_is_refused_until_it_is_free(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "cell"), pytest.raises(BusyError, match="another process works"):
        lock_folder(tmp_path / "cell").__enter__()
    with lock_folder(tmp_path / "cell"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    words = "cannot be locked .*; its file system must have locks, .*, or give another --runs"
    with pytest.raises(WriteError, match=f"lock: {words}"):
        lock_folder(tmp_path / "cell").__enter__()
    with pytest.raises(WriteError, match=rf"a\.partial: {words}"):
        unfinished_rows(tmp_path / "a.npy", (2, 3)).__enter__()
