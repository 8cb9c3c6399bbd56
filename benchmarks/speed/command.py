"""Command line of a benchmark of speed, and the ranges of the numeric options of all of them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import tyro

from transfer.running.option_ranges import OptionError, Range, check_ranges

SettingsType = TypeVar("SettingsType")

COUNT = Range(1, 2**31 - 1)
SIZE_PX = Range(32, 2**13)
SPEED_RANGES: Mapping[str, Range] = {
    "batch_size": Range(1, 2**24),
    "cells": COUNT,
    "checkpoints": COUNT,
    "classes": Range(1, 2**16),
    "crop_px": SIZE_PX,
    "dim": Range(1, 2**20),
    "height_px": SIZE_PX,
    "images": COUNT,
    "latent": Range(1, 2**20),
    "n": Range(40, 2**24),
    "num_bank": COUNT,
    "num_neighbors": COUNT,
    "num_queries": COUNT,
    "parallel": Range(1, 2**16),
    "roi_samples": Range(1, 2**16),
    "rounds": COUNT,
    "seed": Range(0, 2**32 - 1),
    "steps": COUNT,
    "views": Range(1, 2**16),
    "width_px": SIZE_PX,
    "work_s": Range(0, 86_400),
}
"""Range of every numeric option, by the name of its field."""


def run_benchmark(
    options: type[SettingsType],
    words: Sequence[str],
    description: str | None,
    run: Callable[[SettingsType], None],
) -> int:
    """Parse the words, run the benchmark, and return the exit status: 2 for a number out of range.

    The words are those behind the command's name, the description what --help prints first.
    """
    settings = tyro.cli(options, args=list(words), description=description)
    try:
        check_ranges(settings, SPEED_RANGES)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    run(settings)
    return 0
