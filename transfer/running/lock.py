"""Exclusive locks on folders and open files; a lock ends with its process at the latest."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transfer.running.atomic_files import explain_write_errors


class BusyError(RuntimeError):
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


def lock_file(descriptor: int) -> bool:
    """Lock an open file; return whether no other process had it locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
