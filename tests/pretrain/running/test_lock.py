"""A folder has one owner; a file system without locks is reported."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError
from pretrain.running.lock import BusyError, lock_folder, wait_for_lock
from transfer.frozen.feature_file import unfinished_rows


def test_a_locked_folder_is_refused_until_it_is_free(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "cell"), pytest.raises(BusyError, match="another process works"):
        lock_folder(tmp_path / "cell").__enter__()
    with lock_folder(tmp_path / "cell"):
        pass


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with wait_for_lock(tmp_path / "folder" / "lock"):
            order.append("second")

    thread = threading.Thread(target=second)
    with wait_for_lock(tmp_path / "folder" / "lock"):
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_folder_is_waited_for_with_one_note_until_a_request_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output: list[str] = []
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            stop._received_signals.append(15)

    monkeypatch.setattr(stop, "_received_signals", [])
    monkeypatch.setattr("time.sleep", sleep)
    with lock_folder(tmp_path), pytest.raises(stop.Stopped):
        wait_for_lock(tmp_path / "lock", note=lambda: output.append("waits")).__enter__()
    assert (output, len(slept)) == (["waits"], 3)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    args = "cannot be locked .*; its file system must support locks, .*, or pass another --runs"
    with pytest.raises(WriteError, match=f"lock: {args}"):
        lock_folder(tmp_path / "cell").__enter__()
    with pytest.raises(WriteError, match=f"b: {args}"):
        wait_for_lock(tmp_path / "b", "--runs").__enter__()
    with pytest.raises(WriteError, match=rf"a\.lock: {args}"):
        unfinished_rows(tmp_path / "a.npy", (2, 3)).__enter__()
