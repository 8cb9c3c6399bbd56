"""The range of every numeric option and of a schedule, and the check of a command's numbers."""

import math
from collections.abc import Mapping, Sequence

from pretrain.running.command_line import OptionError, Range, numbers

COUNT = Range(0, 2**31 - 1)
RANGES: Mapping[str, Range] = {
    "batch_size": Range(0, 2**24),
    "gpus": Range(0, 1024),
    "heads": Range(0, 1000),
    "image_memory_gb": Range(0, 1e6),
    "image_px": Range(32, 2**13, or_zero=True),
    "images_per_gpu": Range(0, 2**24),
    "input_mean": Range(0, 1),
    "input_px": Range(8, 2**13, or_zero=True),
    "input_std": Range(0, 1e3, open_below=True),
    "iterations": COUNT,
    "learning_rates": Range(0, open_below=True),
    "rates_at_once": Range(0, 1024),
    "seed": Range(0, 2**32 - 1),
    "tolerate": COUNT,
    "workers": Range(1, 1024),
}
"""Range of every numeric option of transfer, by the name of its field."""


def check_ranges(options: object, ranges: Mapping[str, Range] = RANGES) -> None:
    """Raise an OptionError for the first number out of range, also in nested dataclasses."""
    for name, values in numbers(options):
        require_in_range(f"--{name.replace('_', '-')}", values, ranges[name])


def require_in_range(option: str, values: Sequence[float], range_: Range) -> None:
    """Raise an OptionError that names the option if one of its numbers is out of range."""
    if wrong := [value for value in values if value not in range_]:
        found = str(wrong[0]).removesuffix(".0")
        raise OptionError(f"{option} {found}: expected {range_}")


NAMED = {"paper": 1.0, "short": 0.1, "smoke": 0.0}
"""Share of each named schedule; a smoke run has none, since each task defines its few steps."""


def length_fraction(schedule: str) -> float:
    """Return a schedule's share of the paper's length, 0 to 1.

    schedule: "paper", "short", "smoke", or a number such as "0.02".
    """
    if schedule in NAMED:
        return NAMED[schedule]
    try:
        value = float(schedule)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise ValueError(
            f"--schedule {schedule!r}: expected paper, short, smoke, "
            "or the share of the paper's length, such as 0.02"
        )
    return value
