"""python -m benchmarks.speed NAME: compare the ways of one pair; `--help` lists the pairs."""

import sys
from collections import defaultdict
from importlib import import_module

import benchmarks.speed
from pretrain.running.command_line import (
    OptionError,
    Range,
    check_ranges,
    nearest,
    parse,
    run_command,
)

PAIRS = ("losses", "steps", "views", "crops", "features", "encoders", "probe", "svm")
"""Files of this room with a pair of ways: their `Settings`, and `run`, which compares them."""
RANGES = defaultdict(
    lambda: Range(1, 2**31 - 1),
    crop_px=Range(32, 2**13),
    n=Range(40, 2**24),
)
"""Range of every numeric option, by the name of its field; the others are counts."""


def main(words: list[str]) -> int:
    """Run the command line; return its exit status, 2 for a wrong request."""
    name, *rest = words or ["--help"]
    if name in ("-h", "--help"):
        print(benchmarks.speed.__doc__)
        return 0
    if name not in PAIRS:
        print(f"error: no pair {name!r}; did you mean {nearest(name, PAIRS)}?", file=sys.stderr)
        return 2
    pair = import_module(f"benchmarks.speed.{name}")
    program = f"python -m benchmarks.speed {name}"
    settings = parse(pair.Settings, rest, prog=program, description=pair.__doc__)
    try:
        check_ranges(settings, RANGES)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    pair.run(settings)
    return 0


if __name__ == "__main__":
    run_command(main)
