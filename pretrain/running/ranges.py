"""Numeric settings: types with the range of valid values, and their check.

Whether settings fit each other, the data and the processes is checked elsewhere.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

from pretrain.running.command_line import OptionError, option_of


@dataclass(frozen=True)
class Range:
    """Range of a number."""

    minimum: float = -math.inf
    maximum: float = math.inf
    open_below: bool = False
    """True if the minimum is excluded."""
    open_above: bool = False
    """True if the maximum is excluded."""
    or_zero: bool = False
    """True if 0 is also allowed, as a default."""

    def __contains__(self, value: float) -> bool:
        """Return whether a value is in the range; NaN and infinity never are."""
        if self.or_zero and value == 0:
            return True
        is_above = value > self.minimum if self.open_below else value >= self.minimum
        is_below = value < self.maximum if self.open_above else value <= self.maximum
        return is_above and is_below and abs(value) != math.inf

    def __str__(self) -> str:
        """Return a text such as "0, or at least 32 and at most 8192"."""
        bounds = []
        if self.minimum > -math.inf:
            bounds.append(f"{'above' if self.open_below else 'at least'} {self.minimum:.10g}")
        if self.maximum < math.inf:
            bounds.append(f"{'below' if self.open_above else 'at most'} {self.maximum:.10g}")
        text = " and ".join(bounds) or "a finite number"
        return f"0, or {text}" if self.or_zero else text


MAX_SIDE_PX = 2**13

Real = Annotated[float, Range()]
NotNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, open_below=True)]
Fraction = Annotated[float, Range(0, 1)]
PositiveFraction = Annotated[float, Range(0, 1, open_below=True)]
Momentum = Annotated[float, Range(0, 1, open_above=True)]
Count = Annotated[int, Range(0, 2**31 - 1)]
PositiveCount = Annotated[int, Range(1, 2**31 - 1)]
NumImages = Annotated[int, Range(0, 2**24)]
NumViews = Annotated[int, Range(1, 1000)]
NumSmallViews = Annotated[int, Range(0, 1000)]
NumGPUs = Annotated[int, Range(0, 1024)]
NumWorkers = Annotated[int, Range(0, 1024)]
MemoryGB = Annotated[float, Range(0, 1e6)]
Hours = Annotated[float, Range(0, 1e5)]
Dimension = Annotated[int, Range(1, 2**20)]
QueueSize = Annotated[int, Range(1, 2**27)]
SidePx = Annotated[int, Range(1, MAX_SIDE_PX)]
SEEDS = Range(0, 2**32 - 1)
Seed = Annotated[int, SEEDS]


def check_ranges(options: object) -> None:
    """Raise OptionError for the first number out of range.

    Nested dataclasses are checked, too. A number without a range, such as that of a plugin's
    method, must be finite.
    """
    ranges = ranges_of(options)
    for name, values in numbers(options):
        require_in_range(option_of(name), values, ranges.get(name, Range()))


def require_in_range(option: str, values: Sequence[float], range_: Range) -> None:
    """Raise OptionError if one of an option's numbers is out of range."""
    texts = [str(value).removesuffix(".0") for value in values]
    for value, text in zip(values, texts, strict=True):
        if value not in range_:
            which = f", not {text}" if len(texts) > 1 else ""
            raise OptionError(f"{option} {' '.join(texts)}: expected {range_}{which}")


def numbers(options: object) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield name and numbers of each numeric field, also in nested dataclasses."""
    for spec in fields(options):  # type: ignore[arg-type]
        value = getattr(options, spec.name)
        if is_dataclass(value):
            yield from numbers(value)
            continue
        values = value if isinstance(value, tuple) else (value,)
        numeric = tuple(
            item for item in values if isinstance(item, int | float) and not isinstance(item, bool)
        )
        if numeric:
            yield spec.name, numeric


def ranges_of(options: Any) -> dict[str, Range]:
    """Return the range of each field that declares one.

    options: a dataclass, or an instance. Fields of nested dataclasses are included.
    """
    ranges: dict[str, Range] = {}
    kind = options if isinstance(options, type) else type(options)
    hints = get_type_hints(kind, include_extras=True)
    for spec in fields(options):
        hint = hints[spec.name]
        candidates = (getattr(options, spec.name, None), hint, *get_args(hint)[:1])
        if (range_ := _range_of(hint)) is not None:
            ranges[spec.name] = range_
        elif nested := next(filter(is_dataclass, candidates), None):
            ranges |= ranges_of(nested)
    return ranges


def _range_of(hint: Any) -> Range | None:
    """Return the range in an annotation or its arguments.

    For example, in a tuple's items.
    """
    if isinstance(hint, Range):
        return hint
    ranges = map(_range_of, get_args(hint))
    return next((range_ for range_ in ranges if range_ is not None), None)
