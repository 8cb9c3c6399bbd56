"""Time of a call on a device, its least, launches and waits, memory, batches, photographs."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from pretrain.parts.resnet import build_resnet

Facts = dict[str, float | str]
"""Measured numbers by name."""


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


NATIVE_PX = 224
TRAIN_PASSES, KEY_PASSES = 8, 3
"""Passes over memory of a batch norm's maps, in training and without gradient: forward one to read
them for statistics and two to apply these, backward five."""
IMAGES = 256
"""Batch over which the weights are read once."""


def floor_us(arch: str, flops: float, bytes_per_s: float) -> tuple[float, float]:
    """Return the least microseconds of a 224 px view of a ResNet in bf16: trained, and of a key.

    They follow from what a GPU attains per second in products and copies. A convolution takes the
    longer of its FLOPs and its bytes, forward and for both gradients. A key has no gradient, but
    the statistics of the batch.
    """
    with torch.device("meta"):
        network, _ = build_resnet(arch, "imagenet")
    convolutions, maps = 0.0, 0.0

    def add(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal convolutions, maps
        if isinstance(layer, nn.Conv2d):
            weights = layer.weight.numel()
            moved = 2 * (inputs[0].numel() + output.numel() + weights / IMAGES)
            products = 2 * output.numel() * weights / layer.out_channels
            convolutions += 1e6 * max(products / flops, moved / bytes_per_s)
        elif isinstance(layer, nn.BatchNorm2d):
            maps += 1e6 * 2 * output.numel() / bytes_per_s

    for layer in network.modules():
        layer.register_forward_hook(add)
    network(torch.empty(1, 3, NATIVE_PX, NATIVE_PX, device="meta"))
    return 3 * convolutions + TRAIN_PASSES * maps, convolutions + KEY_PASSES * maps


SIDE = 8192


def attained(device: torch.device) -> tuple[float, float]:
    """Return what a device attains per second: FLOPs of a bf16 product, bytes of a copy."""
    side = SIDE if device.type == "cuda" else SIDE // 32
    matrix = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    product = seconds_per_call(lambda: matrix @ matrix, device, warm_up=3, calls=10)
    large = torch.empty(4 * side**2, device=device, dtype=torch.bfloat16)
    copied = torch.empty_like(large)
    copy = seconds_per_call(lambda: copied.copy_(large), device, warm_up=3, calls=10)
    return 2 * side**3 / product, 2 * large.nbytes / copy


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def with_peak_memory(measure: Callable[[], float], device: torch.device) -> tuple[float, float]:
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


def trace(step: Callable[[], object], num_steps: int) -> Facts:
    """Return launches, waits, and ms of uploads per step, on a GPU."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(num_steps):
            with record_function(STEP):
                step()
        torch.cuda.synchronize()
    events = recorded.events()
    on_host = [event for event in events if event.device_type.name != "CUDA"]
    spans = [event.time_range for event in on_host if event.name == STEP]
    # calls outside of the steps, such as the profiler's, are none
    calls = [
        event.name
        for event in on_host
        if any(span.start <= event.time_range.start <= span.end for span in spans)
    ]

    uploads = [
        event.time_range
        for event in events
        if event.device_type.name == "CUDA" and event.name.startswith("Memcpy HtoD")
    ]
    return {
        "launches": sum(name in LAUNCHES for name in calls) / num_steps,
        "waits": sum(name in WAITS for name in calls) / num_steps,
        "ms upload": sum(each.end - each.start for each in uploads) / 1e3 / num_steps,
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch and OpenCV to the calling thread."""
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def write_photographs(folder: Path, number: int) -> Path:
    """Write JPEG files of 500 x 375 px with a spectrum like that of photographs."""
    generator = np.random.default_rng(0)
    for place in range(number):
        image = np.full((375, 500, 3), 128.0, dtype=np.float32)
        for octave in range(2, 9):
            noise = generator.standard_normal((2**octave, 2**octave, 3), dtype=np.float32)
            image += 150 / 2**octave * cv2.resize(noise, (500, 375), interpolation=cv2.INTER_CUBIC)
        pixels = image.clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{place:04}.jpg", quality=95)
    return folder
