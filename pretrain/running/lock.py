"""Exclusive locks on folders and open files; a lock ends with its process at the latest."""

import fcntl
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pretrain.running import stop
from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.errors import SuiteError

LOOK_AGAIN_S = 0.2
"""Time between attempts to lock a file that another process has locked."""
FOLDER_AGAIN_S = 10
"""Time between attempts to lock a folder that another process may have locked for hours."""


class BusyError(SuiteError, RuntimeError):
    """Error for a cell that another process works on."""


@contextmanager
def lock_folder(work: Path) -> Iterator[None]:
    """Lock a folder; BusyError if another process has it locked.

    WriteError if the folder cannot be written, or is on a file system without locks.
    """
    with explain_write_errors(work / "lock", "--runs"):
        work.mkdir(parents=True, exist_ok=True)
        file = (work / "lock").open("w")
    with file:
        with explain_write_errors(work / "lock", "--runs"):
            locked = lock_file(file.fileno())
        if not locked:
            raise BusyError(f"{work}: another process works on this cell; wait for it, or stop it")
        yield


@contextmanager
def wait_for_folder(work: Path, note: Callable[[], None]) -> Iterator[None]:
    """Lock a folder, and wait while another process has it locked; then call `note` once.

    Stopped if a signal comes while it waits.
    """
    with ExitStack() as stack:
        for attempt in itertools.count():
            try:
                stack.enter_context(lock_folder(work))
                break
            except BusyError:
                if not attempt:
                    note()
            for _ in range(FOLDER_AGAIN_S):  # a signal is answered within a second
                stop.exit_if_requested()
                time.sleep(1)
        yield


@contextmanager
def wait_for_lock(path: Path, option: str = "") -> Iterator[None]:
    """Lock a file, which stays, and wait while another process has it locked.

    WriteError if the file cannot be written, or is on a file system without locks; `option` is the
    command-line option that selects another folder.
    """
    with explain_write_errors(path, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    with file:
        while True:
            with explain_write_errors(path, option):
                if lock_file(file.fileno()):
                    break
            stop.exit_if_requested()
            time.sleep(LOOK_AGAIN_S)
        yield


def lock_file(descriptor: int) -> bool:
    """Lock an open file; return whether no other process had it locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
