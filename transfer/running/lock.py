"""A folder in which only one process works at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transfer.running.atomic_files import explain_write_errors


class BusyError(RuntimeError):
    """Another process works on the same cell."""


@contextmanager
def alone(work: Path) -> Iterator[None]:
    """BusyError if another process is in the folder; the lock goes with the process."""
    with explain_write_errors(work / "lock", "--runs"):
        work.mkdir(parents=True, exist_ok=True)
        file = (work / "lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"{work}: another process works on this cell; wait for it, or stop it"
            ) from error
        yield
