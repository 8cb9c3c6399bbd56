"""Signals that ask a run to stop: a time limit, a preemption, Ctrl-C.

The exit status that schedulers requeue is also named in transfer/running/stop.py and
slurm/requeue.py: these rooms import nothing of each other.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import torch

from pretrain.parts.gather import any_process

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
EXIT_RESUMABLE = 75
"""Exit status of a run that stopped on request and can go on: EX_TEMPFAIL of sysexits.h."""


class StoppedError(Exception):
    """A signal has come before the first step; its text is the signal's name."""


class StopRequest:
    """Record of the last signal that asked the run to stop."""

    def __init__(self) -> None:
        self.name = ""

    def note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; this is its handler."""
        self.name = signal.Signals(number).name

    def on_any_process(self, device: torch.device) -> bool:
        """Return whether any process got a signal; all processes must call it at the same step."""
        return any_process(bool(self.name), device)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catch the signals that schedulers send, for as long as the run lasts."""
    request = StopRequest()
    before = {number: signal.signal(number, request.note) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Raise a StoppedError at the signals that schedulers send, for work that keeps nothing."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise StoppedError(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
