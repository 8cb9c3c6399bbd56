"""Commands in forked processes, and all processes that they have started.

A fork has already imported the suite, so a signal hits the work and not the import of torch.
Processes that a command starts, such as torchrun's, begin with a new Python.
"""

import ctypes
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's <sys/prctl.h>
PAUSE_S = 0.02

Commands = tuple[tuple[str, ...], ...]
"""Arguments after `python -m` of commands that are started together."""


def adopt_orphans() -> None:
    """Adopt all descendants of this process after their parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """Return all running descendants of this process, sorted by id."""
    result: list[int] = []
    for child in children(pid):
        result += [*([child] if _runs(child) else []), *descendants(child)]
    return sorted(result)


def children(pid: int) -> Iterator[int]:
    """Yield the child processes of a process, from all its threads.

    Yields nothing if the process has ended.
    """
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended meanwhile
                yield from map(int, (task / "children").read_text().split())


def _runs(pid: int) -> bool:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def send(number: signal.Signals, pids: list[int]) -> None:
    """Send a signal to processes; skip those that have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@dataclass
class Running:
    """Commands that were started together; each leads its own session."""

    log: Path
    """File to which the output of the commands is appended."""
    leaders: list[int] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    """Exit status by process id, negative for a signal.

    Includes adopted orphans.
    """

    def start(self, args: tuple[str, ...]) -> None:
        """Start `python -m ARGS` in a fork."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            become(partial(_run_module, args), self.log)
        self.leaders.append(pid)

    def have_ended(self) -> bool:
        """Return whether all commands have ended; their children may still run."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
        return all(pid in self.statuses for pid in self.leaders)

    def wait(self, limit_s: float) -> bool:
        """Wait until all commands have ended.

        Return whether this was within the limit.
        """
        until = time.monotonic() + limit_s
        while not self.have_ended():
            if time.monotonic() > until:
                return False
            time.sleep(PAUSE_S)
        return True

    def wait_for_orphans(self, limit_s: float) -> int:
        """Wait for all descendants, and return how many remain at the limit."""
        until = time.monotonic() + limit_s
        while descendants(os.getpid()) and time.monotonic() < until:
            self.have_ended()
            time.sleep(PAUSE_S)
        return len(descendants(os.getpid()))

    def results(self) -> list[int]:
        """Return the exit status of each command."""
        return [self.statuses[pid] for pid in self.leaders]

    def printed(self) -> str:
        """Return the output of all commands."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill_all(self) -> None:
        """Kill every descendant of this process, including newly started ones."""
        while pids := descendants(os.getpid()):
            send(signal.SIGKILL, pids)
            self.have_ended()
            time.sleep(PAUSE_S)
        self.have_ended()


@contextmanager
def running(commands: Commands, log: Path) -> Iterator[Running]:
    """Start commands together; all their processes end with the context."""
    run = Running(log)
    try:
        for args in commands:
            run.start(args)
        yield run
    finally:
        run.kill_all()


def run_to_end(commands: Commands, log: Path) -> None:
    """Run commands undisturbed; RuntimeError if one fails."""
    with running(commands, log) as run:
        run.wait(600)
        run.wait_for_orphans(5)
    if any(run.results()):
        raise RuntimeError(f"{commands[0]} fails undisturbed: {run.results()}, see {log}")


def become(run: Callable[[], int], log: Path) -> NoReturn:
    """Run a function in this fork as session leader, then exit."""
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", 1) for number in (1, 2))
        status = run()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _run_module(args: tuple[str, ...]) -> int:
    sys.argv = list(args)
    runpy.run_module(args[0], run_name="__main__", alter_sys=True)
    return 0
