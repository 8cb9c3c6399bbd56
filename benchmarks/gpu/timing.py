"""Time of a call on a device, its launches and waits, its peak memory, and the batch that fits."""

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

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


STEP = "step of the trace"
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy")
"""Calls that return when the GPU has finished; PyTorch ends a blocking copy by the first."""


@dataclass(frozen=True)
class Event:
    """A call of the host, or work of a GPU."""

    name: str
    begin_us: float
    end_us: float
    on_gpu: bool = False

    @property
    def milliseconds(self) -> float:
        return (self.end_us - self.begin_us) / 1e3


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Means over the steps of a trace."""

    launches: float
    waits: float
    upload_ms: float
    collectives_ms: float


def count(events: Iterable[Event], num_steps: int) -> Counts:
    """Return the counts per step; calls outside of the steps, such as the profiler's, are none."""
    events = list(events)
    spans = [event for event in events if event.name == STEP and not event.on_gpu]
    calls = [
        event.name
        for event in events
        if not event.on_gpu
        and any(span.begin_us <= event.begin_us <= span.end_us for span in spans)
    ]
    work = [event for event in events if event.on_gpu]
    uploads = [event.milliseconds for event in work if event.name.startswith("Memcpy HtoD")]
    collectives = [event.milliseconds for event in work if event.name.startswith("ncclDevKernel")]
    return Counts(
        launches=sum(name in LAUNCHES for name in calls) / num_steps,
        waits=sum(name in WAITS for name in calls) / num_steps,
        upload_ms=sum(uploads) / num_steps,
        collectives_ms=sum(collectives) / num_steps,
    )


def trace(step: Callable[[], object], num_steps: int) -> Counts:
    """Return the counts of a function that takes a step on a GPU."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(num_steps):
            with record_function(STEP):
                step()
        torch.cuda.synchronize()
    events = (
        Event(
            name=event.name,
            begin_us=event.time_range.start,
            end_us=event.time_range.end,
            on_gpu=event.device_type.name == "CUDA",
        )
        for event in recorded.events()
    )
    return count(events, num_steps)
