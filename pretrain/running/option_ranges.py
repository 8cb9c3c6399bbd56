"""Ranges of numbers, and the numeric options of a command; it needs no torch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass


class OptionError(ValueError):
    """An option outside of its range."""


@dataclass(frozen=True)
class Range:
    """Range of a number."""

    least: float = -math.inf
    most: float = math.inf
    open_below: bool = False
    """True if the least value is excluded."""
    open_above: bool = False
    """True if the largest value is excluded."""
    or_zero: bool = False
    """True if 0 is allowed as well, and stands for a default."""

    def __contains__(self, value: float) -> bool:
        """Return whether a value is in the range; nan and infinity never are."""
        if self.or_zero and value == 0:
            return True
        above = value > self.least if self.open_below else value >= self.least
        below = value < self.most if self.open_above else value <= self.most
        return above and below and abs(value) != math.inf

    def __str__(self) -> str:
        """Return words such as "0, or at least 32 and at most 8192"."""
        lower = f"{'above' if self.open_below else 'at least'} {self.least:.10g}"
        upper = f"{'below' if self.open_above else 'at most'} {self.most:.10g}"
        words = [lower] * (self.least > -math.inf) + [upper] * (self.most < math.inf)
        return f"{'0, or ' * self.or_zero}{' and '.join(words) or 'a finite number'}"


def numbers(options: object) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the name and the numbers of each numeric field of a dataclass and those in it."""
    for spec in fields(options):  # type: ignore[arg-type]
        value = getattr(options, spec.name)
        if is_dataclass(value):
            yield from numbers(value)
            continue
        values = value if isinstance(value, tuple) else (value,)
        found = tuple(
            one for one in values if isinstance(one, int | float) and not isinstance(one, bool)
        )
        if found:
            yield spec.name, found
