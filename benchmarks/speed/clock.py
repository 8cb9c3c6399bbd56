"""What a measurement counts as time, and into which parts it falls."""

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
    """Processor time of this process and of the loader processes that have ended; with a GPU wall
    time, when the GPU has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    ended = os.times()  # in hundredths of a second
    return time.process_time() + ended.children_user + ended.children_system


class Clock:
    """Time per subject and part; one part inside another stops the outer one for so long."""

    def __init__(self, subject: str, now: Callable[[], float] = seconds) -> None:
        self.now = now
        self.spent: dict[tuple[str, str], float] = defaultdict(float)
        self._counting = (subject, "rest")
        self._since = now()

    @contextmanager
    def during(self, *, subject: str = "", part: str = "rest") -> Iterator[None]:
        """Of the present subject if none is given."""
        before = self._counting
        self._count((subject or before[0], part))
        try:
            yield
        finally:
            self._count(before)

    def timed(self, part: str, function: Callable[P, R]) -> Callable[P, R]:
        """The function, its time counted as this part."""

        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.during(part=part):
                return function(*args, **kwargs)

        return run

    def stop(self) -> None:
        """What passes from here on is not counted."""
        self._count(self._counting)

    def total(self) -> float:
        """All that was counted."""
        return sum(self.spent.values())

    def _count(self, following: tuple[str, str]) -> None:
        now = self.now()
        self.spent[self._counting] += now - self._since
        self._counting, self._since = following, now
