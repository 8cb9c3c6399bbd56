"""Measure training steps of published recipes.

This process makes one batch, as workers do, and uses it in all steps. The throughput of one core
that makes batches is also measured. Two recipes are also compiled, and fed by workers, as in a run,
with each value of --colors-in and with 8 and 16 cores. On a CPU, the smoke recipes are measured.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from time import process_time
from typing import Literal
from unittest.mock import patch

import cv2
import torch

from benchmarks.gpu import evaluation
from benchmarks.gpu.floor import compare_with_floor, count_views
from benchmarks.gpu.static_step import StaticStep
from benchmarks.gpu.timing import (
    Measurement,
    Quantities,
    first_that_fits,
    seconds_per_call,
    with_peak_memory,
    write_images,
)
from pretrain.command import parse
from pretrain.data import augment_device
from pretrain.data.feed import HostBatch, pin_memory
from pretrain.data.listing import find_images
from pretrain.job import Job, prepare
from pretrain.loop import Training, training_step, wrap_network
from pretrain.running.loader import BATCHES_AHEAD
from pretrain.running.processes import Process
from pretrain.step_memory import memory_needs
from transfer.datasets.catalog import DATASETS
from transfer.finetuning.schedule import Precision
from transfer.process_state import one_thread

RECIPES: Mapping[str, str] = {
    "moco": "moco/in1k-r50-v2",
    "jcl": "jcl/in1k-r50",
    "simsiam": "simsiam/in1k-r50",
    "byol": "byol/in1k-r50",
    "lorac": "lorac/in1k-r50 --prior-from 0",  # otherwise, half of the run has no prior
}
"""Recipe and options by method; a CPU uses the smoke recipes."""
BATCHES = (256, 128, 64, 32)
"""Batch sizes to try, until one fits into memory."""
PAPER_BATCHES = {"moco": 32, "jcl": 64}
"""Batch size per GPU in the papers, by method.

Such short steps wait for kernel launches. The steps of these methods are also measured as a CUDA
graph, compiled, and fed by workers.
"""
Variant = Literal["plain", "graph", "compiled"]
VARIANTS: Mapping[Variant, str] = {
    "plain": "",
    "graph": ", as a CUDA graph",
    "compiled": ", compiled",
}
"""How a step runs, and the end of its name."""
CORES = (8, 16)
"""Numbers of cores per GPU for the comparison of --colors-in."""
CPU_BATCHES = (16,)
MAX_IMAGES = 64
WARM_UP_STEPS, TIMED_STEPS = 4, 10


def step_throughput(
    name: str,
    device: torch.device,
    folder: Path,
    batches: Sequence[int] = BATCHES,
    variant: Variant = "plain",
) -> Quantities:
    """Measure steps of a method with the first batch that fits.

    A CPU computes the same steps without a graph or a compiler.
    """
    on_gpu = device.type == "cuda"
    recipe, *options = RECIPES[name].split() if on_gpu else [f"{name}/smoke"]
    if on_gpu and variant == "compiled":
        options.append("--compile")

    def measure(batch_size: int) -> Quantities:
        job = step_job(recipe, device, folder, batch_size, *options)
        needs = memory_needs(job.method, job.recipe, batch_size, job.dtype)
        host_batch, core_throughput = make_batch(job)
        plain_s = seconds_of_plain_step(job)
        views, seconds, memory = measure_steps(job, host_batch, variant)
        throughput = batch_size / seconds
        hours = job.recipe.epochs * DATASETS["in1k"].counts["trainval"] / throughput / 3600
        return {
            "recipe": job.name,
            "images per GPU": batch_size,
            "precision": str(job.dtype),
            "images/s": throughput,
            "ms": 1e3 * seconds,
            "hours of the recipe on this device alone": hours,
            "images/s that one core decodes, crops and colors": core_throughput,
            "workers needed": throughput / core_throughput,
            "peak memory GB": memory,
            "estimated memory GB": needs / 1e9,
            **compare_with_floor(job, views, seconds, plain_s),
        }

    return first_that_fits(measure, batches if on_gpu else CPU_BATCHES)


def make_batch(job: Job) -> tuple[HostBatch, float]:
    """Make a batch on one core, like a worker; return it and the images/s."""
    num_threads = cv2.getNumThreads()
    cv2.setNumThreads(0)
    try:
        with one_thread():
            started_s = process_time()
            host_batch = job.feed.make(0)
            throughput = job.recipe.batch_size / (process_time() - started_s)
    finally:
        cv2.setNumThreads(num_threads)
    return pin_memory(host_batch) if job.process.device.type == "cuda" else host_batch, throughput


def seconds_of_plain_step(job: Job) -> float:
    """Return the seconds of a supervised step with the network and batch of a job."""
    recipe, device = job.recipe, job.process.device
    precision: Precision = "bfloat16" if job.dtype == torch.bfloat16 else "float32"
    px, images = recipe.views.size_px, recipe.batch_size
    plain = evaluation.new_classifier(recipe.arch, px, 1000, device, images, recipe.stem)
    plain.network.train()
    torch.backends.cudnn.benchmark = device.type == "cuda"  # as in `Training`
    return seconds_per_step(partial(evaluation.training_step, plain, device, precision), device)


def measure_steps(
    job: Job, host_batch: HostBatch, variant: Variant
) -> tuple[tuple[float, float], float, float]:
    """Return the views as counted by `count_views`, the seconds per step, and the peak GB.

    All steps upload and normalize the same batch.
    """
    device, training = job.process.device, Training(job)
    static: StaticStep | None = None

    def step() -> None:
        batch = job.feed.finish(host_batch)
        if static is None:
            training_step(job, training, training.method, batch)
        else:
            static.take(batch)

    views = count_views(job, step)
    wrap_network(job, training.method)  # compiles it if the options say so
    if variant == "graph":
        static = StaticStep(job, training, job.feed.finish(host_batch))
        if device.type == "cuda":
            step()  # draws the first permutations
            static.capture()
    return views, *with_peak_memory(partial(seconds_per_step, step, device), device)


def seconds_per_step(step: Callable[[], None], device: torch.device) -> float:
    """Return the mean seconds of a step; a CPU computes only one."""
    warm_up, calls = (WARM_UP_STEPS, TIMED_STEPS) if device.type == "cuda" else (0, 1)
    return seconds_per_call(step, device, warm_up=warm_up, calls=calls)


def fed_step_throughput(
    name: str, cores: int, colors_in: str, device: torch.device, folder: Path
) -> Quantities:
    """Measure compiled steps of a method that loader workers feed, as in a run.

    cores: number of cores of the workers and this process; ValueError if the machine has fewer.
    colors_in: "workers" or "device", where color augmentations run. On the device, they are
    compiled, too. On a CPU, nothing is compiled, and there is one worker.
    """
    on_gpu = device.type == "cuda"
    workers = cores if on_gpu else 1
    recipe, *options = [*RECIPES[name].split(), "--compile"] if on_gpu else [f"{name}/smoke"]
    options += ["--colors-in", colors_in, "--workers", str(workers)]
    # workers prefetch batches, so that the first ones say nothing about throughput
    ahead = BATCHES_AHEAD * workers
    warm_up, calls = (WARM_UP_STEPS + ahead, max(TIMED_STEPS, ahead)) if on_gpu else (0, 1)

    def measure(batch_size: int) -> Quantities:
        job = step_job(recipe, device, folder, batch_size, *options)
        training = Training(job)
        wrap_network(job, training.method)
        with closing(job.feed.batches(0, job.num_steps)) as batches:
            seconds = seconds_per_call(
                lambda: training_step(job, training, training.method, next(batches)),
                device,
                warm_up=warm_up,
                calls=calls,
            )
        return {
            "recipe": job.name,
            "images per GPU": batch_size,
            "workers": workers,
            "images/s": batch_size / seconds,
            "ms": 1e3 * seconds,
        }

    if not on_gpu:
        return first_that_fits(measure, CPU_BATCHES)
    with restricted_to(cores), compiled_color():
        return first_that_fits(measure, BATCHES)


@contextmanager
def restricted_to(cores: int) -> Iterator[None]:
    """Restrict this process and its future children to some of its cores.

    ValueError if it has fewer.
    """
    available = os.sched_getaffinity(0)
    if len(available) < cores:
        raise ValueError(f"not measured: {cores} cores are needed, {len(available)} are available")
    os.sched_setaffinity(0, sorted(available)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, available)


@contextmanager
def compiled_color(backend: str = "inductor") -> Iterator[None]:
    """Compile the colors on the device, with symbolic sizes.

    The number of images that an operation changes differs in each step.
    """
    compiled = torch.compile(augment_device.color, dynamic=True, backend=backend)
    with patch.object(augment_device, "color", compiled):
        yield


def norm_kernels(device: torch.device, folder: Path) -> Quantities:
    """Return which library's batch norm kernels torch uses in training, by dtype.

    "Native" stands for the kernels of torch.
    """
    vector = torch.ones(64, device=device)
    quantities: Quantities = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        maps = torch.ones(32, 64, 56, 56, dtype=dtype, device=device)
        maps = maps.contiguous(memory_format=torch.channels_last)
        choice = torch._C._select_batch_norm_backend(maps, *[vector] * 4, True, 1e-5)
        quantities[str(dtype)] = choice.name
    return quantities


def step_job(
    recipe: str, device: torch.device, folder: Path, batch_size: int, *options: str
) -> Job:
    """Return the job of a recipe on generated images.

    At most 64 JPEG files of 500 x 375 px differ. options: further arguments of the command.
    """
    data = folder / f"photographs{batch_size}"
    if not data.exists():
        data.mkdir()
        write_images(data, min(batch_size, MAX_IMAGES))
        for copy in range(MAX_IMAGES, batch_size):
            original = data / f"{copy % MAX_IMAGES:04}.jpg"
            (data / f"{copy:04}.jpg").hardlink_to(original)
    args = ["--data", str(data), "--out", str(folder / "run"), "--device", device.type]
    args += ["--workers", "0", "--memory-gb", "0"]
    args += ["--batch-size", str(batch_size), "--steps", "1000", *options]
    command = parse(recipe, args)
    return prepare(recipe, command, Process(device=device), find_images(command.data))


STEPS: Mapping[str, Measurement] = {
    **{name: partial(step_throughput, name) for name in RECIPES},
    **{
        f"{name}, {images} images per GPU{end}": partial(
            step_throughput, name, batches=(images,), variant=variant
        )
        for variant, end in VARIANTS.items()
        for name, images in PAPER_BATCHES.items()
    },
    **{
        f"{name}, compiled": partial(step_throughput, name, variant="compiled")
        for name in PAPER_BATCHES
    },
}
"""Measurements by name; the slow ones, which compile, come last."""
FEEDS: Mapping[str, Measurement] = {
    f"{name} on {cores} cores, colored by {place}": partial(
        fed_step_throughput, name, cores, colors_in
    )
    for name in PAPER_BATCHES
    for cores in CORES
    for colors_in, place in {"workers": "workers", "device": "the device"}.items()
}
"""Measurements by name."""
