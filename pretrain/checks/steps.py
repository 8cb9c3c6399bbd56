"""Reports of the steps of published recipes: time by phase, FLOPs, memory, and distance to a floor.

Batches are made once by this process, as workers make them, and used again: no disk and no worker
is measured, but the rate at which one core makes them is.
"""

import os
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pretrain.checks.gpu_peaks import BEST, FUSED, bf16_peak, has_floor
from pretrain.checks.phases import Stopwatch, split_forward_time, watch
from pretrain.checks.place import Place
from pretrain.checks.report import Fact, Outcome
from pretrain.checks.started import photographs, start_job
from pretrain.checks.traces import Counts, trace
from pretrain.data.augment import constants_on
from pretrain.data.feed import Batch, FileViews
from pretrain.data.packing import unpack
from pretrain.data.side_stream import made_aside
from pretrain.loop import Job, Training, training_step
from pretrain.precision import network_dtype
from pretrain.running.launch import Process
from pretrain.speed.timing import synchronize
from pretrain.speed.view_pipelines import one_thread

RECIPES: Mapping[str, str] = {
    "moco": "moco/in1k-r50-v2",
    "jcl": "jcl/in1k-r50",
    "simsiam": "simsiam/in1k-r50",
    "byol": "byol/in1k-r50",
    "lorac": "lorac/in1k-r50",
}
"""Method -> recipe that is reported on a GPU; on a CPU it is the smoke recipe."""
BATCHES = (256, 128, 64, 32)
"""Images that are tried, until they fit into the memory."""
CPU_BATCH = 16


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Number of steps of each measurement."""

    warm_up: int
    timed: int


GPU_EFFORT, CPU_EFFORT = Effort(warm_up=4, timed=10), Effort(warm_up=0, timed=1)


def step_report(place: Place, name: str) -> Outcome:
    """Measure the steps of a method with the largest batch that fits into the memory."""
    for batch_size in BATCHES if place.on_gpu else (CPU_BATCH,):
        try:
            return Outcome(status="measured", facts=measure(place, name, batch_size))
        except torch.OutOfMemoryError:
            pass  # left before the next try, since an error holds what its frames hold
        torch.cuda.empty_cache()
    return Outcome(status="failed", reason=f"{BATCHES[-1]} images do not fit into the memory")


def measure(place: Place, name: str, batch_size: int) -> dict[str, Fact]:
    """Return all that is measured of one recipe and batch."""
    recipe, arch = (RECIPES[name], "resnet50") if place.on_gpu else (f"{name}/smoke", "resnet18")
    job = step_job(place, recipe, batch_size)
    effort = effort_on(place)
    prepared, per_core = prepare_batch(job)
    training = Training(job)
    rate, memory_gb = whole_steps(training, training.method, prepared, effort)
    with FlopCounterMode(display=False) as flops, closing(repeat(job, prepared)) as batches:
        training_step(job, training, training.method, next(batches))
    facts: dict[str, Fact] = {
        "recipe": recipe,
        "images_per_gpu": batch_size,
        "precision": str(network_dtype(job.execution.precision, place.device.type)),
        "images_per_s": rate,
        "ms": 1e3 * batch_size / rate,
        "gflop_per_image": flops.get_total_flops() / batch_size / 1e9,
        "decoded_images_per_s_and_core": per_core,
        "workers_needed": rate / per_core,
        "cores": os.cpu_count() or 0,
    }
    if place.on_gpu:
        facts["peak_memory_gb"] = memory_gb
        facts |= share_of_peak(torch.cuda.get_device_name(place.device), facts)
    stopwatch = Stopwatch(place.device)
    times, counts = phase_times(training, prepared, stopwatch, effort)
    facts |= {f"ms_{phase.replace(' ', '_')}": value for phase, value in times.items()}
    if counts is not None:
        facts |= {"launches": counts.launches, "waits": counts.waits}
        gpu = torch.cuda.get_device_name(place.device)
        facts |= distances(gpu, arch, stopwatch.views, effort.timed * batch_size, rate)
    return facts


def effort_on(place: Place) -> Effort:
    """Return the number of steps of a measurement; a CPU takes as few as possible."""
    return GPU_EFFORT if place.on_gpu else CPU_EFFORT


def step_job(place: Place, recipe: str, batch_size: int, process: Process | None = None) -> Job:
    """Return the job of a recipe whose views are colored on the device."""
    images = photographs(place, batch_size)
    options = ["--batch-size", str(batch_size), "--steps", "1000", "--memory-gb", "0"]
    return start_job(recipe, place, images, *options, "--colors-in", "device", process=process)


def prepare_batch(job: Job) -> tuple[list[Tensor], float]:
    """Return a batch as workers hand it over, pinned for a GPU, and images/s of one core."""
    with one_thread():
        started_s = time.process_time()
        batch = FileViews(job.feed)[0]
        seconds = time.process_time() - started_s
    if job.process.device.type == "cuda":
        batch = [part.pin_memory() for part in batch]
    return batch, len(job.feed.plan.batch(0)[1]) / seconds


def repeat(job: Job, prepared: list[Tensor]) -> Generator[Batch, None, None]:
    """Yield the batch again and again, uploaded and colored each time.

    prepared: crops (n, 3, H, W) of each stack of views, then the packed numbers (bytes,).
    """
    constants = constants_on(job.feed.device, job.feed.recipe)
    *stacks, packed = prepared
    while True:
        _, *numbers = unpack(packed, job.feed.device)
        yield Batch(job.feed.finish_views(stacks, numbers, constants), None)


def whole_steps(
    training: Training, network: nn.Module, prepared: list[Tensor], effort: Effort
) -> tuple[float, float]:
    """Return images/s of this process's steps as in training, and the peak of memory in GB.

    prepared: crops (n, 3, H, W) of each stack of views, then the packed numbers (bytes,).
    """
    job, device = training.job, training.job.process.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with closing(made_aside(repeat(job, prepared), device)) as batches:
        for _ in range(effort.warm_up):
            training_step(job, training, network, next(batches))
        synchronize(device)
        started_s = time.perf_counter()
        for _ in range(effort.timed):
            training_step(job, training, network, next(batches))
        synchronize(device)
    seconds = time.perf_counter() - started_s
    peak = torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0
    return effort.timed * job.recipe.batch_size / job.process.num_processes / seconds, peak


def phase_times(
    training: Training, prepared: list[Tensor], stopwatch: Stopwatch, effort: Effort
) -> tuple[dict[str, float], Counts | None]:
    """Return the milliseconds of a step by phase, and the counts of a trace on a GPU.

    Views are made on the stream of the step, so that each phase is measured by itself.
    prepared: crops (n, 3, H, W) of each stack of views, then the packed numbers (bytes,).
    """
    job, device = training.job, training.job.process.device
    with closing(repeat(job, prepared)) as batches:

        def step() -> None:
            begin = stopwatch.mark()
            batch = next(batches)
            stopwatch.add("views", begin, stopwatch.mark())
            training_step(job, training, training.method, batch)

        counts = trace(step, 2) if device.type == "cuda" else None
        watch(training.method, training.optimizer, stopwatch)
        for _ in range(min(effort.warm_up, 1)):
            step()
        stopwatch.clear()
        for _ in range(effort.timed):
            step()
    times = {phase: ms / effort.timed for phase, ms in stopwatch.milliseconds().items()}
    times = split_forward_time(times)
    # copies and collectives come from the trace, since they are parts of other phases
    upload = counts.upload_ms if counts else 0.0
    times["upload"], times["views"] = upload, times["views"] - upload
    times["collectives"] = counts.collectives_ms if counts else 0.0
    return times, counts


def share_of_peak(gpu: str, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the name of a GPU, and the share of its bf16 peak that a step reaches if known."""
    peak = bf16_peak(gpu)
    if peak is None:
        return {"gpu": gpu}
    reached = float(facts["gflop_per_image"]) * float(facts["images_per_s"]) / 1e3
    return {"gpu": gpu, "tflops": reached, "share_of_bf16_peak": reached / peak}


def distances(
    gpu: str, arch: str, views: Mapping[str, float], num_images: int, images_per_s: float
) -> dict[str, Fact]:
    """Return how many times as long as the floors a step takes; nothing where none is known.

    views: those of `num_images` images that passed with gradient ("query pass") and without.
    """
    if not has_floor(gpu, arch):
        return {}
    trained, keys = (views.get(name, 0.0) / num_images for name in ("query pass", "key pass"))
    facts: dict[str, Fact] = {"trained_views_per_image": trained, "key_views_per_image": keys}
    for name, floor in (("fused", FUSED), ("best", BEST)):
        facts[f"distance_to_{name}_floor"] = 1 / images_per_s / floor.seconds(trained, keys)
    return facts
