"""Compare the loader processes of evaluations that run in parallel on one machine.

Each evaluation has its share of the CPU cores, as in a run, or all cores. Each loads the same
images, with the evaluation transform for 224 px and without a network. A round's time is that of
the slowest evaluation.
"""

import multiprocessing as mp
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pretrain.running.command_line import parse
from transfer.datasets.folders import data_folder
from transfer.datasets.images import class_names, read_class_folders
from transfer.frozen import extraction
from transfer.frozen.transforms import EvalTransform


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    data: Path = field(default_factory=data_folder)
    """Folder of images with one folder per class."""
    processes: int = 2
    """Number of parallel evaluations."""
    rounds: int = 3
    """Number of timed rounds."""


def load(folder: Path, workers: int, barrier: Any, seconds: Any) -> None:
    """Load all images once; put the elapsed time in s."""
    images = read_class_folders(folder, folder, class_names(folder))
    pixels = extraction.EvalImages(images, EvalTransform.center(224, margin_px=32))
    with patch.object(extraction, "num_workers", lambda number: workers):
        barrier.wait()
        start_s = time.monotonic()
        for _ in extraction.raw_batches(pixels, 0, pinned=False):
            pass
        seconds.put(time.monotonic() - start_s)


def round_seconds(settings: Settings, workers: int) -> float:
    """Return the elapsed time in s of the slowest process."""
    context = mp.get_context("spawn")
    barrier, seconds = context.Barrier(settings.processes), context.Queue()
    args = (settings.data, workers, barrier, seconds)
    processes = [context.Process(target=load, args=args) for _ in range(settings.processes)]
    for process in processes:
        process.start()
    slowest: float = max(seconds.get() for _ in processes)
    for process in processes:
        process.join()
    return slowest


def main(settings: Settings) -> None:
    """Time both ways in turn, after one round of each."""
    cores = len(os.sched_getaffinity(0))
    ways = {"share of the cores": max(1, cores // settings.processes), "all cores": cores}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(settings.rounds + 1):
        for way, workers in ways.items():
            elapsed_s = round_seconds(settings, workers)
            if number:
                times[way].append(elapsed_s)
    for way, values in times.items():
        shown = ", ".join(f"{value:.2f}" for value in values)
        print(
            f"{way}, {ways[way]} workers each: median {statistics.median(values):.2f} s ({shown})"
        )


if __name__ == "__main__":
    main(parse(Settings, sys.argv[1:], description=__doc__))
