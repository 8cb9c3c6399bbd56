"""An orderly stop: a signal sets a flag, which loops check between steps.

The exit status that schedulers requeue is also named in pretrain/running/stop.py and
slurm/requeue.py: these rooms import nothing of each other.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

EXIT_RESUMABLE = 75  # EX_TEMPFAIL: "try again", what schedulers and run_all take as "not finished"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
_asked: list[int] = []


class Stopped(SystemExit):
    """Exit after a signal, with all state saved; the same command continues from here."""


def listen(*, at_once: bool = False) -> None:
    """Install the handler that makes signals of schedulers and Ctrl-C request an orderly stop.

    at_once: raise Stopped wherever the main thread is, for work that a kill anywhere cannot harm.
    """
    for number in SIGNALS:
        signal.signal(number, _stop_at_once if at_once else _note)


def signal_at_parents_end() -> None:
    """Let the kernel signal this process when its parent ends; called at the process's start."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def exit_if_requested() -> None:
    """Raise Stopped if a signal has come. Call it only when all state is saved."""
    if _asked:
        raise Stopped(EXIT_RESUMABLE)


def is_requested() -> bool:
    """Return whether a signal has come."""
    return bool(_asked)


def exit_status(main: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a command line and return its exit status; print a last line if it was stopped."""
    try:
        return main(words)
    except Stopped:
        if os.environ.get("RANK", "0") == "0":  # only rank 0 prints
            print(last_line(), file=sys.stderr, flush=True)
        return EXIT_RESUMABLE


def last_line() -> str:
    """Return the last line of a stopped command; the signal may have come to another process."""
    by = f" by {signal.Signals(_asked[0]).name}" if _asked else ""
    return f"stopped{by}, run the same command to go on"


def _note(number: int, frame: FrameType | None) -> None:
    if number in _asked and number == signal.SIGINT:
        raise KeyboardInterrupt  # a second Ctrl-C stops at once
    _asked.append(number)


def _stop_at_once(number: int, frame: FrameType | None) -> None:
    _asked.append(number)
    exit_if_requested()
