"""A command on a faulty machine: python -m tests.campaign.faulty FAULT MODULE WORDS..."""

import errno
import fcntl
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from unittest.mock import patch


def no_locks() -> None:
    """Refuse every lock, as a file system without a lock service does."""

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    patch.object(fcntl, "flock", refuse).start()
    patch.object(fcntl, "lockf", refuse).start()


def unseen_locks() -> None:
    """Grant every lock, as a file system whose locks other machines do not see."""
    patch.object(fcntl, "flock", lambda *arguments: None).start()
    patch.object(fcntl, "lockf", lambda *arguments: None).start()


FAULTS: Mapping[str, Callable[[], None]] = {
    "no-locks": no_locks,
    "unseen-locks": unseen_locks,
}


if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
