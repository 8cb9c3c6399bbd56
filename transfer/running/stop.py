"""Leaving in an orderly way: a signal sets a flag, and the loops look at it between steps."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

REQUEUE = 75  # EX_TEMPFAIL: "try again", what schedulers and run_all take as "not finished"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
_asked: list[int] = []


class Stopped(SystemExit):
    """State is saved; the same command goes on from here."""


def listen() -> None:
    """From now on the signals of schedulers and of Ctrl-C ask for an orderly end."""
    for number in SIGNALS:
        signal.signal(number, _note)


def asked_at_parents_end() -> None:
    """Let the kernel ask this process to stop once its parent is gone; called where it starts."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def leave_if_asked() -> None:
    """Raise Stopped if a signal came. Call it only where all state is saved."""
    if _asked:
        raise Stopped(REQUEUE)


def asked() -> bool:
    """Whether a signal came."""
    return bool(_asked)


def exit_status(main: Callable[[list[str]], int], words: list[str]) -> int:
    """Return the exit status of a command line; where it was stopped, its last line says so."""
    try:
        return main(words)
    except Stopped:
        if os.environ.get("RANK", "0") == "0":  # of several processes one speaks
            print(last_words(), file=sys.stderr, flush=True)
        return REQUEUE


def last_words() -> str:
    """Return what a stopped command says; another process may have heard the signal."""
    by = f" by {signal.Signals(_asked[0]).name}" if _asked else ""
    return f"stopped{by}, run the same command to go on"


def _note(number: int, frame: FrameType | None) -> None:
    if number in _asked and number == signal.SIGINT:
        raise KeyboardInterrupt  # the second Ctrl-C means now
    _asked.append(number)
