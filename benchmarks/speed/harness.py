"""Time several ways to do one thing in turn, in one process.

The order changes every round after a warm-up, so that other load on the machine slows all of them.
(torch.utils.benchmark times one way after the other, by elapsed time.)
"""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

Ways = Mapping[str, Callable[[], Any]]
"""The functions that are timed, by name; the usual way first."""


def compare(title: str, ways: Ways, rounds: int, *, num_images: int = 0) -> dict[str, Any]:
    """Time several ways to do one thing, print a line for each, and return their last results.

    Times are processor time of this process. A ratio is the median over the rounds of the first
    way's time to this one's. num_images: images that each way takes, for a rate.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Any] = dict.fromkeys(ways)
    for turn in range(rounds + 1):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            start_s = time.process_time()
            results[name] = ways[name]()
            seconds[name].append(time.process_time() - start_s)
    print(title)
    usual = next(iter(seconds.values()))[1:]
    for name in ways:
        timed = seconds[name][1:]
        ratio = median(a / b for a, b in zip(usual, timed, strict=True))
        line = f"  {name:<44}{median(timed):11.5f} s{ratio:8.2f} times as fast"
        if num_images:
            line += f"{num_images / median(timed):12,.1f} images/s"
        print(line, flush=True)
    return results
