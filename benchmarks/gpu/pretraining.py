"""Rates of steps of published recipes on a device, and of all GPUs together against one.

Batches are made once by this process, as workers make them, and used again: no disk and no worker
is measured, but the rate at which one core makes them is. On a CPU the recipes are the smoke ones.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu.page import DISTANCE, HOURS, PEAK
from benchmarks.gpu.timing import (
    NATIVE_PX,
    Facts,
    NotMeasuredError,
    attained,
    first_that_fits,
    floor_us,
    one_thread,
    seconds_per_call,
    trace,
    with_peak_memory,
    write_photographs,
)
from pretrain.command import parse
from pretrain.data.augment import constants_on
from pretrain.data.feed import Batch
from pretrain.data.listing import find_images
from pretrain.data.side_stream import made_aside, unpack
from pretrain.launch import join_processes
from pretrain.loop import Training, training_step, wrap_network
from pretrain.method import Method
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.run import Job, prepare
from pretrain.running.processes import Process

RECIPES: Mapping[str, str] = {
    "moco": "moco/in1k-r50-v2",
    "jcl": "jcl/in1k-r50",
    "simsiam": "simsiam/in1k-r50",
    "byol": "byol/in1k-r50",
    "lorac": "lorac/in1k-r50",
}
"""Method -> recipe that is measured on a GPU; on a CPU it is the smoke recipe."""
SCALED = ("moco", "byol")
"""Methods with ShuffleBN and with synchronized batch norm."""
BATCHES = (256, 128, 64, 32)
"""Images that are tried, until they fit into the memory."""
CPU_BATCH = 16
MOST_PHOTOGRAPHS = 64
WARM_UP_STEPS, TIMED_STEPS = 4, 10
TRAIN_IMAGES = 1_281_167
"""Images of an epoch of ImageNet."""
LIMIT_S = 150
"""Seconds after which processes that wait for each other are ended."""


def step_rate(name: str, device: torch.device, folder: Path) -> Facts:
    """Measure the steps of a method with the largest batch that fits into the memory."""
    sizes = BATCHES if device.type == "cuda" else (CPU_BATCH,)
    return first_that_fits(partial(_steps_of_batch, name, device, folder), sizes)


def _steps_of_batch(name: str, device: torch.device, folder: Path, batch_size: int) -> Facts:
    job = step_job(name, Process(device=device), folder, batch_size)
    prepared, per_core = prepare_batch(job)
    training = Training(job)
    counts, memory = with_peak_memory(
        partial(measure_steps, training, training.method, prepared), device
    )
    rate = float(counts["images/s"])
    facts: Facts = {
        "recipe": job.name,
        "images per GPU": batch_size,
        "precision": str(job.dtype),
        **counts,
        "ms": 1e3 * batch_size / rate,
        HOURS: job.recipe.epochs * TRAIN_IMAGES / rate / 3600,
        "decoded images/s and core": per_core,
        "workers needed": rate / per_core,
        PEAK: memory,
    }
    if device.type != "cuda":
        return facts
    views = count_views(training.method)
    with closing(repeat(job, prepared)) as batches:
        training_step(job, training, training.method, next(batches))
    trained, key = floor_us(job.recipe.arch, *attained(device))
    floor_s = 1e-6 * (views["trained"] * trained + views["keys"] * key)
    return facts | {DISTANCE: batch_size / rate / floor_s}


def step_job(name: str, process: Process, folder: Path, batch_size: int) -> Job:
    """Return the job of a method's recipe whose views are colored on the device."""
    recipe = RECIPES[name] if process.device.type == "cuda" else f"{name}/smoke"
    words = ["--data", str(photographs(folder, batch_size)), "--out", str(folder / "run")]
    words += ["--device", process.device.type, "--workers", "0", "--colors-in", "device"]
    words += ["--batch-size", str(batch_size), "--steps", "1000", "--memory-gb", "0"]
    command = parse(recipe, words)
    return prepare(recipe, command, process, find_images(command.data))


def photographs(folder: Path, number: int) -> Path:
    """Return a folder of that many JPEG files of 500 x 375 px, of which at most 64 differ."""
    files = folder / f"photographs{number}"
    if not files.exists():
        files.mkdir(parents=True)
        write_photographs(files, min(number, MOST_PHOTOGRAPHS))
        for copy in range(MOST_PHOTOGRAPHS, number):
            original = files / f"{copy % MOST_PHOTOGRAPHS:04}.jpg"
            (files / f"{copy:04}.jpg").hardlink_to(original)
    return files


def prepare_batch(job: Job) -> tuple[list[Tensor], float]:
    """Return a batch as workers hand it over, pinned for a GPU, and images/s of one core."""
    with one_thread():
        started_s = process_time()
        batch = job.feed.file_views(0)
        seconds = process_time() - started_s
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


def measure_steps(training: Training, network: nn.Module, prepared: list[Tensor]) -> Facts:
    """Return images/s of this process's steps as in training, and on a GPU what a trace counts.

    prepared: crops (n, 3, H, W) of each stack of views, then the packed numbers (bytes,).
    """
    job, device = training.job, training.job.process.device
    on_gpu = device.type == "cuda"
    warm_up, calls = (WARM_UP_STEPS, TIMED_STEPS) if on_gpu else (0, 1)

    def step(batches: Generator[Batch, None, None]) -> None:
        training_step(job, training, network, next(batches))

    with closing(made_aside(repeat(job, prepared), device)) as batches:
        seconds = seconds_per_call(partial(step, batches), device, warm_up=warm_up, calls=calls)
    facts: Facts = {"images/s": job.recipe.batch_size / job.process.num_processes / seconds}
    if on_gpu:
        with closing(repeat(job, prepared)) as batches:
            facts |= trace(partial(step, batches), 2)
    return facts


def count_views(method: Method) -> dict[str, float]:
    """Count the views of the next passes with gradient and without; 224 px are one view."""
    views = {"trained": 0.0, "keys": 0.0}

    def counting(kind: str) -> Callable[..., None]:
        def count(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            if isinstance(inputs[0], Tensor) and inputs[0].ndim == 4:
                views[kind] += len(inputs[0]) * inputs[0].shape[-1] ** 2 / NATIVE_PX**2

        return count

    for module in method.modules():
        if isinstance(module, MomentumEncoder):
            module.register_forward_pre_hook(counting("keys"))
    if isinstance(encoder := getattr(method, "encoder", None), nn.Module):
        encoder.register_forward_pre_hook(counting("trained"))
    return views


def scaling(name: str, device: torch.device, folder: Path) -> Facts:
    """Measure steps of a method on one GPU and on all, with as many images on each."""
    number = torch.cuda.device_count() if device.type == "cuda" else 2
    if number < 2:
        raise NotMeasuredError(f"{number} GPU; several are compared with one")
    one = _share(name, Process(device=device), folder)
    images = BATCHES[1] if device.type == "cuda" else CPU_BATCH
    photographs(folder, number * images)  # once, before the processes read them
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(number), "-m", "benchmarks.gpu.pretraining"]
    subprocess.run([*command, device.type, str(folder), name], check=True, timeout=LIMIT_S)
    together: Facts = torch.load(folder / "scaling.pt")
    rate = float(together["images/s"])
    return {
        "processes": number,
        "images per GPU": images,
        "images/s of one": one["images/s"],
        "efficiency": rate / (number * float(one["images/s"])),
        **together,
    }


def _share(name: str, process: Process, folder: Path) -> Facts:
    """Measure the steps of this process."""
    images = BATCHES[1] if process.device.type == "cuda" else CPU_BATCH
    job = step_job(name, process, folder, images * process.num_processes)
    prepared, _ = prepare_batch(job)
    training = Training(job)
    return measure_steps(training, wrap_network(job, training.method), prepared)


def _measure_together(device: str, folder: Path, name: str) -> None:
    """Measure together with the other processes; the first writes images/s of all."""
    with join_processes("cuda" if device == "cuda" else "cpu") as process:
        facts = _share(name, process, folder)
        total = torch.tensor(facts["images/s"], dtype=torch.float64, device=process.device)
        torch.distributed.all_reduce(total)
        if process.is_main:
            torch.save(facts | {"images/s": float(total)}, folder / "scaling.pt")


MEASUREMENTS: dict[str, Callable[[torch.device, Path], Facts]] = {
    **{f"step of {name}": partial(step_rate, name) for name in RECIPES},
    **{f"scaling of {name}": partial(scaling, name) for name in SCALED},
}
"""Measurements by name."""

if __name__ == "__main__":
    _measure_together(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    sys.stderr.flush()
    # torch 2.15 keeps gloo's threads after DDP was used, and they may abort a normal exit
    os._exit(0)
