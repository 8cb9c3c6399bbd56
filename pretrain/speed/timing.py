"""Time and memory of two implementations in one process."""

import statistics
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def time_in_turns(
    first: Callable[[], object], second: Callable[[], object], num_rounds: int, device: torch.device
) -> tuple[float, float]:
    """Return the median seconds of two functions that run in turns, after a round of warm-up.

    It is elapsed time on a GPU and processor time on a CPU, which other processes do not affect.
    """
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times_s: tuple[list[float], list[float]] = ([], [])
    for number in range(num_rounds + 1):
        for function, seconds in zip((first, second), times_s, strict=True):
            synchronize(device)
            started_s = clock()
            function()
            synchronize(device)
            if number:
                seconds.append(clock() - started_s)
    return statistics.median(times_s[0]), statistics.median(times_s[1])


def peak_mb(function: Callable[[], object], device: torch.device) -> float:
    """Return the largest memory that a call holds at a time beyond its inputs, in MB."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        function()
    held = most = 0
    events = record.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / 1e6


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished; do nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
