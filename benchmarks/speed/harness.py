"""How fast are several ways to do one thing?

They run in turn in this process after a round of warm-up, and the order changes every round, so
that what else the machine does slows all of them. (torch.utils.benchmark times one after the
other, by the wall.)
"""

import os
import resource
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

Ways = Mapping[Any, Callable[[], Any]]
"""The functions that are timed, by name; the usual way first."""


def compare(
    title: str,
    ways: Ways,
    rounds: int,
    *,
    num_images: int = 0,
    wall: bool = False,
    memory: bool = False,
) -> dict[str, Any]:
    """Time several ways to do one thing, print a line for each, and return their last results.

    A ratio is the median over the rounds of the first way's time to this one's. num_images: images
    that each way takes, for a rate. wall: elapsed time, for work of several processes; else the
    processor time of this process and of its ended children, unless they use a GPU. memory: that
    of each way is measured, too.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Any] = dict.fromkeys(ways)
    for turn in range(rounds + 1):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            start_s = _clock(wall)
            results[name] = ways[name]()
            seconds[name].append(_clock(wall) - start_s)
    tell(title)
    usual = next(iter(seconds.values()))[1:]
    for name in ways:
        own = seconds[name][1:]
        ratio = median(a / b for a, b in zip(usual, own, strict=True))
        line = f"  {name:<44}{median(own):11.5f} s{ratio:8.2f} times as fast"
        if num_images:
            line += f"{num_images / median(own):12,.1f} images/s"
        if memory:
            line += f"{peak_mb(ways[name]):12,.1f} MB"
        tell(line)
    return results


def tell(line: str) -> None:
    """Print a line, of the processes of torchrun in the first."""
    if os.environ.get("RANK", "0") == "0":
        print(line, flush=True)


def tell_numbers(numbers: Mapping[str, float]) -> None:
    """Print numbers by name, such as how far the ways agree."""
    for name, value in numbers.items():
        tell(f"  {name}: {value:.4g}")


def peak_mb(way: Callable[[], object]) -> float:
    """Return the most memory that a call holds at a time beyond what there was, in MB.

    It is the GPU's if torch uses one.
    """
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        way()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        way()
    held = most = 0
    events = record.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / 1e6


def _clock(wall: bool) -> float:
    """Return the elapsed time, when a GPU that is used has done its work, or the processor time."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif not wall:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + ended.ru_utime + ended.ru_stime
    return time.perf_counter()
