"""An orderly stop: a signal sets a flag, which loops check between steps.

The exit status that schedulers requeue is also named in slurm/requeue.py, which imports nothing of
ours.

torchrun reports every stop as an error when its processes have ended, so another process waits for
its end and prints the last line: python stop.py PROCESS TEXT.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

EXIT_RESUMABLE = 75
"""Exit status of what stopped on request and can go on: EX_TEMPFAIL of sysexits.h."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
PATIENCE_S = 60.0
"""Seconds to wait for the end of torchrun, which kills its processes after 30 s."""
_asked: list[int] = []


class Stopped(SystemExit):
    """Exit after a signal, with all state saved; the same command continues from here."""


def listen(*, at_once: bool = False, twice: bool = True) -> None:
    """Install the handler that makes signals of schedulers and Ctrl-C request an orderly stop.

    at_once: raise Stopped wherever the main thread is, for work that a kill anywhere cannot harm.
    twice: a second Ctrl-C raises KeyboardInterrupt. torchrun sends each signal a second time.
    """

    def note(number: int, frame: FrameType | None) -> None:
        if number in _asked and number == signal.SIGINT and twice:
            raise KeyboardInterrupt
        _asked.append(number)
        if at_once:
            exit_if_requested()

    for number in SIGNALS:
        signal.signal(number, note)


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


def signal_name() -> str:
    """Return the name of the signal that has come; empty if it came to another process."""
    return signal.Signals(_asked[0]).name if _asked else ""


def last_line() -> str:
    """Return the last line of a stopped command; the signal may have come to another process."""
    by = f" by {signal_name()}" if _asked else ""
    return f"stopped{by}, run the same command to go on"


def print_last_line(text: str) -> None:
    """Write a line to stderr at once, or under torchrun when that has ended."""
    line = f"{time.strftime('%H:%M:%S')}  {text}"
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        print(line, file=sys.stderr, flush=True)
        return
    subprocess.Popen(
        [sys.executable, "-I", __file__, str(os.getppid()), line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # signals to the process group must not end it
    )


def wait_for_end(process: int) -> None:
    """Wait until a process has ended, a minute at most."""
    try:
        descriptor = os.pidfd_open(process)
    except OSError:  # it has ended
        return
    select.select([descriptor], [], [], PATIENCE_S)
    os.close(descriptor)


if __name__ == "__main__":
    wait_for_end(int(sys.argv[1]))
    print(sys.argv[2], file=sys.stderr)
