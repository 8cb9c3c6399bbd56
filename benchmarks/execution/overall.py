"""Progress of a whole run: cells finished, failed, and the time left."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transfer.running.console import format_duration, is_quiet, live_bars

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

LEAST_HOURS = 0.01
"""Least weight of a cell: a cell that costs no GPU time still has to start."""


@dataclass
class Overall:
    """Progress of a run whose cells have known weights, such as estimated GPU hours."""

    total: int
    hours: float
    """Sum of the weights of all cells."""
    bars: "Bars | None" = None
    bar: "TaskID | None" = None
    started: int = 0
    ended: int = 0
    failed: int = 0
    hours_ended: float = 0.0
    start: float = field(default_factory=time.monotonic)
    on_change: Callable[[], None] = lambda: None
    """Called when a cell has begun or ended."""

    def begin(self, what: str) -> None:
        """Announce the next cell, as a line outside of a terminal."""
        self.started += 1
        if self.bars is None and not is_quiet():
            print(f"[{self.started}/{self.total}] {what}", file=sys.stderr, flush=True)
        self._show(what)
        self.on_change()

    def end(self, hours: float, *, failed: bool) -> None:
        """Count a cell that has ended; hours: its weight."""
        self.ended += 1
        self.failed += failed
        self.hours_ended += max(hours, LEAST_HOURS)
        self._show("")
        self.on_change()

    def state(self) -> str:
        """Return words such as "12/50 cells, 1 failed, 2 h 10 min left"."""
        words = [f"{self.ended}/{self.total} cells"]
        words += [f"{self.failed} failed"] * bool(self.failed)
        if self.hours_ended and self.ended < self.total:
            elapsed = time.monotonic() - self.start
            left = elapsed * (self.hours - self.hours_ended) / self.hours_ended
            words.append(f"about {format_duration(max(0.0, left))} left")
        return ", ".join(words)

    def _show(self, what: str) -> None:
        if self.bars is not None and self.bar is not None:
            title = f"all cells  {what}" if what else None  # None: it stays
            self.bars.update(
                self.bar, description=title, completed=self.hours_ended, count=self.state()
            )
            self.bars.refresh()


@contextmanager
def overall_progress(
    hours: list[float], on_change: Callable[[], None] = lambda: None
) -> Iterator[Overall]:
    """Yield the progress of cells with these estimated hours, with a bar on a terminal."""
    whole = sum(max(each, LEAST_HOURS) for each in hours)
    with live_bars() as bars:
        bar = None if bars is None else bars.add_task("all cells", total=whole, count="")
        yield Overall(total=len(hours), hours=whole, bars=bars, bar=bar, on_change=on_change)
