"""The range of every numeric option, and the check of a command's numbers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass


class OptionError(ValueError):
    """An option outside of its range."""


@dataclass(frozen=True)
class Range:
    """Range of a number."""

    least: float
    most: float = math.inf
    open_below: bool = False
    """True if the least value is excluded."""
    or_zero: bool = False
    """True if 0 is allowed as well, and stands for a default."""

    def __contains__(self, value: float) -> bool:
        """Return whether a value is in the range; nan and infinity never are."""
        if self.or_zero and value == 0:
            return True
        above = value > self.least if self.open_below else value >= self.least
        return above and value <= self.most and abs(value) != math.inf

    def __str__(self) -> str:
        """Return words such as "0, or at least 32 and at most 8192"."""
        lower = f"{'above' if self.open_below else 'at least'} {self.least:.10g}"
        upper = f" and at most {self.most:.10g}" if self.most < math.inf else ""
        return f"{'0, or ' if self.or_zero else ''}{lower}{upper}"


COUNT = Range(0, 2**31 - 1)
RANGES: Mapping[str, Range] = {
    "batch_size": Range(0, 2**24),
    "gpus": Range(0, 1024),
    "heads": Range(0, 1000),
    "image_memory_gb": Range(0, 1e6),
    "image_px": Range(32, 2**13, or_zero=True),
    "images_per_gpu": Range(0, 2**24),
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
    for name, values in _numbers(options):
        require_in_range(f"--{name.replace('_', '-')}", values, ranges[name])


def require_in_range(option: str, values: Sequence[float], range_: Range) -> None:
    """Raise an OptionError that names the option if one of its numbers is out of range."""
    if wrong := [value for value in values if value not in range_]:
        found = str(wrong[0]).removesuffix(".0")
        raise OptionError(f"{option} {found}: expected {range_}")


def _numbers(options: object) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the name and the numbers of each numeric field of a dataclass and those in it."""
    for spec in fields(options):  # type: ignore[arg-type]
        value = getattr(options, spec.name)
        if is_dataclass(value):
            yield from _numbers(value)
            continue
        values = value if isinstance(value, tuple) else (value,)
        numbers = tuple(
            one for one in values if isinstance(one, int | float) and not isinstance(one, bool)
        )
        if numbers:
            yield spec.name, numbers
