"""Progress on stderr: done, rate, share of time waiting for data, time left."""

import sys
import time
from dataclasses import dataclass, field

TERMINAL_INTERVAL_S = 0.5
LOG_INTERVAL_S = 30.0
FIRST_LINE_S = 10.0
"""Seconds until the first line of a log."""


@dataclass
class Progress:
    """Rates since the run was started or resumed, and a line on stderr from time to time."""

    name: str
    num_steps: int
    steps_per_epoch: int
    batch_size: int
    first_step: int
    waited_s: float = 0.0
    started_s: float = field(default_factory=time.monotonic)
    printed_s: float = field(
        default_factory=lambda: time.monotonic() - LOG_INTERVAL_S + FIRST_LINE_S
    )
    loss: float | None = None
    """Loss at the last reading; None before the first."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run was started or resumed."""
        return max(time.monotonic() - self.started_s, 1e-9)

    def images_per_s(self, step: int) -> float:
        """Return the mean rate since the run was started or resumed."""
        return (step - self.first_step) * self.batch_size / self.elapsed_s

    @property
    def data_share(self) -> float:
        """Share of the time spent waiting for the host's part of views, in percent."""
        return 100 * self.waited_s / self.elapsed_s

    def line(self, step: int) -> str:
        """Return the state after `step` steps in one line."""
        rate = self.images_per_s(step)
        parts = [
            time.strftime("%H:%M:%S"),
            self.name,
            f"epoch {step / self.steps_per_epoch:.2f}/{self.num_steps / self.steps_per_epoch:g}",
            f"{step * self.batch_size}/{self.num_steps * self.batch_size} images",
            f"{rate:.0f} images/s",
            f"{self.data_share:.0f} % waiting for data",
            *([] if self.loss is None else [f"loss {self.loss:.4f}"]),
        ]
        left_s = (self.num_steps - step) * self.batch_size / rate if rate else 0.0
        if left_s >= 60:
            parts.append(f"{duration(left_s)} left")
        return "  ".join(parts)

    def show(self, step: int) -> None:
        """Print the line if the last one is old enough, and always after the last step."""
        terminal = sys.stderr.isatty()
        interval_s = TERMINAL_INTERVAL_S if terminal else LOG_INTERVAL_S
        now_s = time.monotonic()
        if now_s - self.printed_s < interval_s and step < self.num_steps:
            return
        self.printed_s = now_s
        # in a terminal each line overwrites the one before
        start, end = ("\r\033[K", "") if terminal and step < self.num_steps else ("", "\n")
        sys.stderr.write(f"{start}{self.line(step)}{end}")
        sys.stderr.flush()


def print_line(text: str) -> None:
    """Print one line with the time of day on stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """Return a duration in readable units, such as 4 min 07 s or 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
