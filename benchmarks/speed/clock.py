"""Time of a measurement, divided into subjects and parts."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def seconds() -> float:
    """Return the processor time of this process and of its ended loader processes, in s.

    With a GPU, wait until it has done its work and return the wall time.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    ended = os.times()  # its resolution is 0.01 s, so process_time is used for this process
    return time.process_time() + ended.children_user + ended.children_system


class Clock:
    """Clock that adds up time per subject and part; an inner part pauses the outer one."""

    def __init__(self, subject: str, now: Callable[[], float] = seconds) -> None:
        self.now = now
        self.spent: dict[tuple[str, str], float] = defaultdict(float)
        self._counting = (subject, "rest")
        self._since = now()

    @contextmanager
    def during(self, *, subject: str = "", part: str = "rest") -> Iterator[None]:
        """Count the block's time as this part, of the current subject if none is given."""
        before = self._counting
        self._count((subject or before[0], part))
        try:
            yield
        finally:
            self._count(before)

    def timed(self, part: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with its time counted as this part."""

        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.during(part=part):
                return function(*args, **kwargs)

        return run

    def stop(self) -> None:
        """Count the time until now; later time is not counted."""
        self._count(self._counting)

    def total(self) -> float:
        """Return the sum of all counted time, in s."""
        return sum(self.spent.values())

    def _count(self, following: tuple[str, str]) -> None:
        now = self.now()
        self.spent[self._counting] += now - self._since
        self._counting, self._since = following, now
