"""Types of numeric settings with the range of valid values.

settings.py checks whether settings fit each other, the data and the processes.
"""

from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

from pretrain.running.command_line import Range

MAX_SIDE_PX = 2**13
MAX_VIEWS = 1000

Real = Annotated[float, Range()]
NotNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, open_below=True)]
Fraction = Annotated[float, Range(0, 1)]
PositiveFraction = Annotated[float, Range(0, 1, open_below=True)]
Momentum = Annotated[float, Range(0, 1, open_above=True)]
Count = Annotated[int, Range(0, 2**31 - 1)]
PositiveCount = Annotated[int, Range(1, 2**31 - 1)]
NumViews = Annotated[int, Range(1, MAX_VIEWS)]
Dimension = Annotated[int, Range(1, 2**20)]
QueueSize = Annotated[int, Range(0, 2**27)]
SidePx = Annotated[int, Range(1, MAX_SIDE_PX)]


def ranges_of(options: Any) -> dict[str, Range]:
    """Return the range of each field that declares one.

    Fields of nested dataclasses are included.
    """
    ranges: dict[str, Range] = {}
    hints = get_type_hints(type(options), include_extras=True)
    for spec in fields(options):
        if is_dataclass(value := getattr(options, spec.name)):
            ranges |= ranges_of(value)
        elif (range_ := _range_of(hints[spec.name])) is not None:
            ranges[spec.name] = range_
    return ranges


def _range_of(hint: Any) -> Range | None:
    """Return the range in an annotation or its arguments.

    For example, in a tuple's items.
    """
    if isinstance(hint, Range):
        return hint
    ranges = map(_range_of, get_args(hint))
    return next((range_ for range_ in ranges if range_ is not None), None)
