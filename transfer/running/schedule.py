"""The length at which a protocol is run: the paper's, a share of it, or a few steps."""

import math

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
