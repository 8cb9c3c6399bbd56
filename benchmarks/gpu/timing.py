"""Time of a call on a device, its peak memory, and the batch that fits."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from benchmarks.gpu.rates import Facts

R = TypeVar("R")


class NotMeasuredError(Exception):
    """Reason why something cannot be measured on this machine."""


def seconds_per_call(
    call: Callable[[], object], device: torch.device, *, warm_up: int, calls: int
) -> float:
    """Return the mean wall time of a call, in s, with all work of the device that it starts."""
    for _ in range(warm_up):
        call()
    wait_for(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait_for(device)
    return (time.perf_counter() - start) / calls


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def with_peak_memory(measure: Callable[[], R], device: torch.device) -> tuple[R, float]:
    """Return what `measure` does, and the device's peak memory meanwhile in GB; 0 on a CPU."""
    if device.type != "cuda":
        return measure(), 0.0
    torch.cuda.reset_peak_memory_stats(device)
    measured = measure()
    return measured, torch.cuda.max_memory_allocated(device) / 1e9


def first_that_fits(measure: Callable[[int], Facts], sizes: Sequence[int]) -> Facts:
    """Return the facts of the first batch size for which the device's memory is large enough.

    OutOfMemoryError if the last one is too large as well.
    """
    for size in sizes[:-1]:
        try:
            return measure(size)
        except torch.OutOfMemoryError:
            pass
        # the error, and with it all tensors of its frames, is gone only here
        gc.collect()
        torch.cuda.empty_cache()
    return measure(sizes[-1])
