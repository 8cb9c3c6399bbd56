"""An exclusive lock on a folder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transfer.running.atomic_files import explain_write_errors


class BusyError(RuntimeError):
    """Error for a cell that another process works on."""


@contextmanager
def alone(work: Path) -> Iterator[None]:
    """Lock a folder; BusyError if another process has it locked. The lock ends with the process."""
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
