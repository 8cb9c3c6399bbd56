"""Text tables; log lines and progress on stderr: done, total, throughput and remaining time.

In a terminal, and in a notebook with ipywidgets, progress is a bar that is redrawn in place, below
the lines printed in the meantime. Elsewhere it is a line every half minute. `--quiet` disables
both. A function may also be called with the progress (`progress_callback`).
"""

import errno
import io
import os
import select
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

QUIET = "SSL_BENCHMARK_QUIET"
"""Environment variable that silences log lines and progress.
Processes started later inherit it."""
LINE_INTERVAL_S = 30.0
FIRST_LINE_S = 10.0
"""Seconds until the first line of a log."""
BAR_INTERVAL_S = 0.2
CALLBACK_INTERVAL_S = 5.0
BAR_WIDTH = 24

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""Errors of files after which later lines may succeed."""

_bars: "ContextVar[Bars | None]" = ContextVar("bars", default=None)
_callback: ContextVar[Callable[[str], None] | None] = ContextVar("callback", default=None)


class _Output(io.FileIO):
    """A standard stream that discards text once nothing reads it any more."""

    def write(self, content: Any, /) -> int:
        """Write bytes; return how many were written or dropped."""
        try:
            while (count := super().write(content)) is None:  # a non-blocking terminal
                select.select([], [self], [])
        except OSError as error:  # the reader, such as tee, has ended, or the terminal was closed
            if error.errno not in FULL_DISK:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                # also redirects libraries and processes that write to the same descriptor
                os.dup2(nowhere, self.fileno())
                os.close(nowhere)
            return memoryview(content).nbytes
        return count


def protect_output() -> None:
    """Prevent failures of stdout or stderr from ending this process.

    Text is dropped after the reader has ended. Characters that the terminal or log cannot show are
    printed as escapes.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # it was closed before this process started
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w")))
            continue
        with suppress(OSError):
            stream.flush()
        raw = _Output(descriptor, "w", closefd=False)
        text = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, text)


def format_duration(seconds: float) -> str:
    """Format a duration like "4 min 07 s"."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds_left:02d} s" if minutes else f"{seconds_left} s"


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return lines with padded columns; the columns `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def is_quiet() -> bool:
    """Return whether log lines and progress are silenced."""
    return bool(os.environ.get(QUIET))


def is_live() -> bool:
    """Return whether progress is drawn as bars.

    For that, stderr must be a terminal that can move its cursor.
    """
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not is_quiet()


def _in_notebook() -> bool:
    """Return whether this is a notebook that can redraw in place."""
    return "ipykernel" in sys.modules and find_spec("ipywidgets") is not None and not is_quiet()


def print_line(*texts: str) -> None:
    """Print time, optional stage and text to stderr."""
    *stages, text = texts
    if not is_quiet():
        line = "  ".join([time.strftime("%H:%M:%S"), *(f"{stage:<10}" for stage in stages), text])
        print(line, file=sys.stderr, flush=True)


@contextmanager
def live_bars() -> "Iterator[Bars | None]":
    """Yield the progress bars, shared with an enclosing call; None if bars cannot be drawn."""
    outer = _bars.get()
    if outer is not None or not (is_live() or _in_notebook()):
        yield outer
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    text = TextColumn("{task.description}", markup=False)
    # no refresh thread: loader processes are forked, and would inherit its locks
    with Bars(
        text,
        BarColumn(bar_width=BAR_WIDTH),
        TextColumn("{task.fields[count]}", markup=False),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    ) as bars:
        token = _bars.set(bars)
        try:
            yield bars
        finally:
            _bars.reset(token)


@contextmanager
def progress_callback(callback: Callable[[str], None]) -> Iterator[None]:
    """Call a function with the progress as text, every few seconds."""
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


class Progress:
    """A progress display, started and ended by `progress`."""

    def __init__(
        self, step: str, subject: str, total: int, unit: str, done: int, bars: "Bars | None"
    ) -> None:
        self.step, self.subject, self.total, self.unit = step, subject, total, unit
        self.done = self.start_count = done
        self.printed = ("", -1)
        """Subject and number of finished items of the last line."""
        self.start = self.last_call = time.monotonic()
        # print the first line after FIRST_LINE_S
        self.last_update = self.start - LINE_INTERVAL_S + FIRST_LINE_S
        self.bars, self.callback = bars, _callback.get()
        self.bar = None if bars is None else bars.add_task(self._title(), total=total, count="")

    def add(self, count: int) -> None:
        """Add `count` finished items."""
        self.done += count
        now = time.monotonic()
        if self.callback is not None and now - self.last_call >= CALLBACK_INTERVAL_S:
            self.last_call = now
            self.callback(f"{self.step}  {self.subject}  {self.state()}")
        if now - self.last_update < (LINE_INTERVAL_S if self.bars is None else BAR_INTERVAL_S):
            return
        self.last_update = now
        if self.bars is None or self.bar is None:
            self._print()
        else:
            done, total = self.done, max(self.total, self.done)
            title, state = self._title(), self.state()
            self.bars.update(self.bar, description=title, completed=done, total=total, count=state)
            self.bars.refresh()

    @property
    def rate(self) -> float:
        """Items per second since the start."""
        return (self.done - self.start_count) / max(time.monotonic() - self.start, 1e-9)

    def state(self) -> str:
        """Return the progress as text.

        For example, "256/2000 images   94 images/s   1 min 20 s left".
        """
        rate, text = self.rate, f"{self.done}/{self.total} {self.unit}"
        if not rate:
            return text
        item = self.unit.removesuffix("s")
        text += f"   {rate:.0f} {self.unit}/s" if rate >= 1 else f"   {1 / rate:.1f} s/{item}"
        remaining_s = (self.total - self.done) / rate
        return f"{text}   {format_duration(remaining_s)} left" if remaining_s > 60 else text

    def close(self) -> None:
        """Print the last line, unless it was printed already."""
        if self.bars is not None and self.bar is not None:
            self.bars.remove_task(self.bar)
        if self.printed != (self.subject, self.done):
            self._print()

    def _title(self) -> str:
        return f"{time.strftime('%H:%M:%S')}  {self.step:<10}  {self.subject}"

    def _print(self) -> None:
        self.printed = (self.subject, self.done)
        if not is_quiet():
            print(f"{self._title()}  {self.state()}", file=sys.stderr, flush=True)


@contextmanager
def progress(
    step: str, subject: str, total: int, unit: str = "images", done: int = 0
) -> Iterator[Progress]:
    """Yield a Progress, which is closed even if the work is interrupted."""
    with live_bars() as bars:
        counter = Progress(step, subject, total, unit, done, bars)
        try:
            yield counter
        finally:
            counter.close()
