"""Time and memory of two ways to do the same, in one process."""

import statistics
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def in_turns(
    first: Callable[[], object], second: Callable[[], object], num_rounds: int, device: torch.device
) -> tuple[float, float]:
    """Median seconds of each, after one round that is not counted."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(num_rounds + 1):
        for way, seconds in zip((first, second), taken, strict=True):
            synchronize(device)
            started_s = clock()
            way()
            synchronize(device)
            if number:
                seconds.append(clock() - started_s)
    return statistics.median(taken[0]), statistics.median(taken[1])


def peak_mb(way: Callable[[], object], device: torch.device) -> float:
    """Most memory that a call held at a time beyond its inputs."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        way()
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        way()
    held = most = 0
    events = recorded.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / 1e6


def synchronize(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
