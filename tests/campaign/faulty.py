"""A command on a faulty machine: python -m tests.campaign.faulty FAULT MODULE WORDS..."""

import ctypes
import errno
import fcntl
import os
import random
import runpy
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

DAY_S = 86_400.0
PR_CAPBSET_DROP = 24  # of Linux's <sys/prctl.h>
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2  # of <linux/capability.h>
CAPABILITY_VERSION_3 = 0x20080522


def jumping_clock() -> None:
    """Let the time of day jump by up to a day back or forth whenever it is read or stored."""
    draw, clock, replace = random.Random(os.getpid()), time.time, Path.replace

    def jumped() -> float:
        return clock() + draw.uniform(-DAY_S, DAY_S)

    def replace_at_another_time(path: Path, target: Path) -> Path:
        """Rename a file whose time of change is that of the jumping clock."""
        moment = jumped()
        os.utime(path, (moment, moment))
        return replace(path, target)

    patch.object(time, "time", jumped).start()
    patch.object(time, "gmtime", lambda s=None: _gmtime(jumped() if s is None else s)).start()
    patch.object(Path, "replace", replace_at_another_time).start()


_gmtime = time.gmtime


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


def no_privileges() -> None:
    """Let the permissions of files and folders hold for root and for all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # effective, permitted and inheritable ones of the first 32 capabilities, then of the others
    kept = (ctypes.c_uint32 * 6)()
    libc.capget(header, kept)
    for number in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # a user other than root has none to drop
        for i in range(3):
            kept[i] &= ~(1 << number)
    if libc.capset(header, kept):
        raise OSError(ctypes.get_errno(), "privileges cannot be dropped")


FAULTS: Mapping[str, Callable[[], None]] = {
    "jumping-clock": jumping_clock,
    "no-locks": no_locks,
    "unseen-locks": unseen_locks,
    "no-privileges": no_privileges,
}


if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
