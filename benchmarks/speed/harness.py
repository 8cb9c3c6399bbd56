"""How fast are several ways to do one thing?

They run in turn in this process after a round of warm-up, and the order changes every round, so
that what else the machine does slows all of them. (torch.utils.benchmark times one after the
other, by the wall.) It needs no torch, which commands.py measures the lack of.
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Several ways to do one thing."""

    title: str
    ways: Mapping[str, Callable[[], Any]]
    """What is timed, by name; the usual way first."""
    agreement: Callable[[Mapping[str, Any]], Mapping[str, float]] = lambda results: {}
    """Function from the ways' last results, by name, to numbers that tell how far they agree."""
    num_images: int = 0
    """Images that each way takes, for a rate; 0: none is printed."""
    wall: bool = False
    """Elapsed time, for work of several processes; else the processor time of this process and of
    its ended children, unless they use a GPU."""
    memory: bool = False
    """Whether the memory of each way is measured, too."""


def measure(comparison: Comparison, rounds: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Run all ways in turn, once for warm-up and then `rounds` times.

    Returns the seconds of each way, one entry per round, and the last result of each.
    """
    seconds: dict[str, list[float]] = {name: [] for name in comparison.ways}
    results: dict[str, Any] = dict.fromkeys(comparison.ways)
    for turn in range(-1, rounds):
        for name in list(comparison.ways)[:: -1 if turn % 2 else 1]:
            start_s = _clock(comparison.wall)
            results[name] = comparison.ways[name]()
            taken_s = _clock(comparison.wall) - start_s
            if turn >= 0:
                seconds[name].append(taken_s)
    return seconds, results


def report(comparison: Comparison, rounds: int) -> Iterator[str]:
    """Measure; yield the title, a line for each way, and a line for each number of agreement.

    A ratio is the median over the rounds of the first way's time to this one's.
    """
    seconds, results = measure(comparison, rounds)
    usual = next(iter(seconds.values()))
    yield comparison.title
    for name, way in comparison.ways.items():
        taken_s = median(seconds[name])
        ratio = median(a / b for a, b in zip(usual, seconds[name], strict=True))
        line = f"  {name:<44}{taken_s:11.5f} s{ratio:8.2f} times as fast"
        if comparison.num_images:
            line += f"{comparison.num_images / taken_s:12,.1f} images/s"
        if comparison.memory:
            line += f"{peak_mb(way):12,.1f} MB"
        yield line
    yield from (f"  {name}: {value:.4g}" for name, value in comparison.agreement(results).items())


def peak_mb(way: Callable[[], object]) -> float:
    """Return the most memory that a call holds at a time beyond what there was, in MB.

    It is the GPU's if torch uses one.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

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
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif not wall:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + ended.ru_utime + ended.ru_stime
    return time.perf_counter()
