"""Time alternative implementations in turn, in one process.

The order alternates after each round, so that other load on the machine slows all of them. (In
contrast, torch.utils.benchmark measures wall time, one implementation after another.)
"""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

Functions = Mapping[str, Callable[[], Any]]
"""The functions to time, by name; the usual implementation first."""


def compare(
    title: str, functions: Functions, rounds: int, *, num_images: int = 0
) -> dict[str, Any]:
    """Time several functions, print the times, and return their last results.

    Times are CPU times of this process. The speedup is the median over rounds of the first
    function's time divided by this one's. num_images: images per call, for the throughput.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    results: dict[str, Any] = dict.fromkeys(functions)
    for round_index in range(rounds + 1):
        for name in list(functions)[:: 1 if round_index % 2 else -1]:
            start_s = time.process_time()
            results[name] = functions[name]()
            seconds[name].append(time.process_time() - start_s)
    print(title)
    usual = next(iter(seconds.values()))[1:]
    for name in functions:
        timed = seconds[name][1:]
        ratio = median(a / b for a, b in zip(usual, timed, strict=True))
        line = f"  {name:<44}{median(timed):11.5f} s{ratio:8.2f} times as fast"
        if num_images:
            line += f"{num_images / median(timed):12,.1f} images/s"
        print(line, flush=True)
    return results
