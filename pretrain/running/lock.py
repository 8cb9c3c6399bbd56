"""Exclusive locks on folders and open files; a lock ends with its process at the latest."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pretrain.running import stop
from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.errors import SuiteError

LOOK_AGAIN_S = 0.2
"""Time between attempts to lock a file that another process has locked."""


class BusyError(SuiteError, RuntimeError):
    """Error for a cell that another process works on."""


@contextmanager
def lock_folder(work: Path) -> Iterator[None]:
    """Lock a folder; BusyError if another process has it locked.

    WriteError if the folder cannot be written, or is on a file system without locks.
    """
    with _locking(work / "lock", "--runs") as lock:
        if not lock():
            raise BusyError(f"{work}: another process works on this cell; wait for it, or stop it")
        yield


@contextmanager
def wait_for_lock(
    path: Path, option: str = "", note: Callable[[], None] | None = None
) -> Iterator[None]:
    """Lock a file, which stays; wait while another process has it locked, after one `note`.

    Stopped if a signal comes while it waits. WriteError if the file cannot be written, or is on a
    file system without locks; `option` is the command-line option that selects another folder.
    """
    with _locking(path, option) as lock:
        while not lock():
            if note is not None:
                note()
                note = None
            stop.exit_if_requested()
            time.sleep(LOOK_AGAIN_S)
        yield


@contextmanager
def _locking(path: Path, option: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that tries to lock a file until the end of the context."""
    with explain_write_errors(path, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")

    def lock() -> bool:
        with explain_write_errors(path, option):
            return lock_file(file.fileno())

    with file:
        yield lock


def lock_file(descriptor: int) -> bool:
    """Lock an open file; return whether no other process had it locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
