"""A command line in a forked process, where a test's patches hold."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from pretrain.running import stop
from tests.campaign.processes import become, children

# torch starts its threads of autograd in the first backward pass of a process, and only if it knows
# another device than the CPU by then; torch.compile adds one, and a fork could not train any more
torch.ones((), requires_grad=True).backward()

PATIENCE_S = 300.0
"""Time limit for work that takes seconds on an idle machine."""


class ForkedCommand:
    """A running command, the leader of a process group of its own."""

    def __init__(self, main: Callable[[list[str]], int], words: list[str], log: Path) -> None:
        self.log = log
        self.pid = os.fork()
        if not self.pid:
            become(partial(_run, main, words), log)

    def wait_for_workers(self) -> None:
        """Wait until it has started loader processes; AssertionError if it ends before."""
        until = time.monotonic() + PATIENCE_S
        while not loader_processes(self.pid):
            ended, _ = os.waitpid(self.pid, os.WNOHANG)
            assert not ended, self.log.read_text()
            assert time.monotonic() < until, self.log.read_text()

    def signal_all(self, number: int) -> None:
        """Send a signal to the whole process group."""
        os.killpg(self.pid, number)

    def wait(self) -> int:
        """Return the exit status, negative for a signal.

        None of its group may outlive it.
        """
        until = time.monotonic() + PATIENCE_S
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.01)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return os.waitstatus_to_exitcode(ended[1])
        raise AssertionError("a process of the group has outlived the command")

    def last_line(self) -> str:
        """Return the last line that it has printed."""
        return self.log.read_text().splitlines()[-1]


def loader_processes(pid: int) -> list[int]:
    """Return the loader processes, which block SIGTERM."""
    program = _read(f"/proc/{pid}/cmdline")
    forks = [child for child in children(pid) if _read(f"/proc/{child}/cmdline") == program]
    return [child for child in forks if _blocks_sigterm(_read(f"/proc/{child}/status"))]


def _blocks_sigterm(status: str) -> bool:
    blocked = status.partition("SigBlk:")[2].split()
    return bool(blocked) and bool(int(blocked[0], 16) >> (signal.SIGTERM - 1) & 1)


def _read(file: str) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        return Path(file).read_text()
    return ""


def _run(main: Callable[[list[str]], int], words: list[str]) -> int:
    torch.set_num_threads(1)
    return stop.exit_status(main, words)
