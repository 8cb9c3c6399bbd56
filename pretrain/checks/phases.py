"""Milliseconds of the phases of a step, by events of a GPU or by the clock of a CPU."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pretrain.checks.gpu_peaks import NATIVE_PX
from pretrain.method import Method
from pretrain.parts.momentum_encoder import MomentumEncoder

Mark = torch.cuda.Event | float
"""A moment of a GPU's stream, or seconds."""
QUERY_PARTS = ("encoder", "predictor")
"""Submodules of a method that get gradients."""


class Stopwatch:
    """Times of phases by name, summed over steps; nothing waits until they are read."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.intervals: dict[str, list[tuple[Mark, Mark]]] = defaultdict(list)
        self.views: dict[str, float] = defaultdict(float)
        """Passes by phase, in views of 224 px; smaller ones count by their area."""

    def mark(self) -> Mark:
        """Return this moment."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, phase: str, begin: Mark, end: Mark) -> None:
        """Add the time between two moments to a phase."""
        self.intervals[phase].append((begin, end))

    def clear(self) -> None:
        """Forget all times, such as those of a warm-up."""
        self.intervals.clear()
        self.views.clear()

    def milliseconds(self) -> dict[str, float]:
        """Return the milliseconds of each phase in total; wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return {
            phase: sum(milliseconds(*interval) for interval in intervals)
            for phase, intervals in self.intervals.items()
        }

    def count_views(self, phase: str, images: Tensor) -> None:
        """Count images (n, 3, S, S) of a pass; other inputs are no images."""
        if images.ndim == 4:
            self.views[phase] += len(images) * images.shape[-1] ** 2 / NATIVE_PX**2


def milliseconds(begin: Mark, end: Mark) -> float:
    """Return the milliseconds between two moments that have passed."""
    if isinstance(begin, float) and isinstance(end, float):
        return 1e3 * (end - begin)
    if isinstance(begin, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return float(begin.elapsed_time(end))
    raise TypeError(
        f"one moment is a GPU's and the other is a CPU's: {type(begin).__name__}, "
        f"{type(end).__name__}"
    )


def watch(method: Method, optimizer: Optimizer, stopwatch: Stopwatch) -> None:
    """Time key passes, query passes, momentum updates, the whole forward pass, and the optimizer.

    What lies between the end of the forward pass and the optimizer is the backward pass.
    """
    for module in method.modules():
        if isinstance(module, MomentumEncoder):
            _watch_passes(module, "key pass", stopwatch)
            _watch_calls(module, "update", "momentum update", stopwatch)
    for name, child in method.named_children():
        if name in QUERY_PARTS:
            _watch_passes(child, "query pass", stopwatch)
    _watch_passes(method, "forward", stopwatch)
    _watch_calls(method, "after_step", "forward", stopwatch)  # some momentum updates are there
    ends: list[Mark] = []

    def forward_ends(*_: Any) -> None:
        ends[:] = [stopwatch.mark()]

    def optimizer_begins(*_: Any) -> None:
        begin = stopwatch.mark()
        stopwatch.add("backward", ends.pop(), begin)
        ends.append(begin)

    def optimizer_ends(*_: Any) -> None:
        stopwatch.add("optimizer", ends.pop(), stopwatch.mark())

    method.register_forward_hook(forward_ends)
    optimizer.register_step_pre_hook(optimizer_begins)
    optimizer.register_step_post_hook(optimizer_ends)


def _watch_passes(module: nn.Module, phase: str, stopwatch: Stopwatch) -> None:
    begins: list[Mark] = []

    def begin(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(inputs[0], Tensor):
            stopwatch.count_views(phase, inputs[0])
        begins.append(stopwatch.mark())

    def end(*_: Any) -> None:
        stopwatch.add(phase, begins.pop(), stopwatch.mark())

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end)


def _watch_calls(module: nn.Module, name: str, phase: str, stopwatch: Stopwatch) -> None:
    call: Callable[..., None] = getattr(module, name)

    def timed(*things: Any) -> None:
        begin = stopwatch.mark()
        call(*things)
        stopwatch.add(phase, begin, stopwatch.mark())

    vars(module)[name] = timed  # found before the method of the class


def split_forward_time(times: dict[str, float]) -> dict[str, float]:
    """Return the times with the loss in place of the whole forward pass.

    The loss is what encoders and momentum updates leave of it, queue and metrics included.
    """
    parts = ("momentum update", "key pass", "query pass")
    known = sum(times.get(part, 0.0) for part in parts)
    rest = {name: value for name, value in times.items() if name != "forward"}
    return rest | {"loss": times.get("forward", 0.0) - known}
