"""Launches, waits, copies and collectives of a step, read from a trace of torch's profiler."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile, record_function

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
