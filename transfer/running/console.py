"""Log lines and progress on stderr: done, total, rate and time left."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def format_duration(seconds: float) -> str:
    """Return a duration in the form "4 min 07 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def print_line(room: str, text: str) -> None:
    """Print a line to stderr, after the time and the name of the step (`room`)."""
    print(f"{time.strftime('%H:%M:%S')}  {room:<10}  {text}", file=sys.stderr, flush=True)


class Progress:
    """A progress display: live on a terminal, elsewhere a line every half minute."""

    def __init__(self, step: str, subject: str, total: int, unit: str, done: int = 0) -> None:
        self.step, self.subject, self.total, self.unit = step, subject, total, unit
        self.done = self.start_count = done
        self.start = self.last = time.monotonic()
        self.live = sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Add `count` finished items."""
        self.done += count
        now = time.monotonic()
        if now - self.last >= (0.5 if self.live else 30):
            self.last = now
            self._show("\r" if self.live else "\n")

    def _show(self, end: str) -> None:
        elapsed = time.monotonic() - self.start
        rate = (self.done - self.start_count) / max(elapsed, 1e-9)
        text = f"{self.subject}  {self.done}/{self.total} {self.unit}   {rate:.0f} {self.unit}/s"
        left = (self.total - self.done) / rate if rate else 0.0
        if left > 60:
            text += f"   {format_duration(left)} left"
        stamp = time.strftime("%H:%M:%S")
        print(f"{stamp}  {self.step:<10}  {text:<80}", file=sys.stderr, end=end, flush=True)

    def close(self) -> None:
        """Print the last line."""
        self._show("\n")


@contextmanager
def progress(
    step: str, subject: str, total: int, unit: str = "images", done: int = 0
) -> Iterator[Progress]:
    """Yield a Progress, and close it also when the work is interrupted."""
    counter = Progress(step, subject, total, unit, done)
    try:
        yield counter
    finally:
        counter.close()
