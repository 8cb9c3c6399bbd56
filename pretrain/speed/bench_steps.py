"""Images/s of whole training steps, and steps of JCL beside those of MoCo with as many keys.

pretrain.benchmark prints them.
"""

import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image

from pretrain.command import parse
from pretrain.data.feed import Batch
from pretrain.loop import Training, training_step, wrap_network
from pretrain.precision import network_dtype
from pretrain.run import prepare
from pretrain.running.launch import Process
from pretrain.speed.options import Benchmark
from pretrain.speed.timing import synchronize, time_in_turns


def step_report(settings: Benchmark, data: Path, folder: Path, process: Process) -> str:
    """Measure images/s of whole training steps and the share of time spent waiting for views.

    Images of all processes count.
    """
    training, batches = start_training(settings.recipe, settings, data, folder, process)
    job = training.job
    network = wrap_network(job, training.method)
    with closing(batches):
        for step in range(settings.num_steps + 2):
            if step == 2:
                synchronize(process.device)
                started_s, waited_before_s = time.perf_counter(), job.feed.waiting.seconds
            batch = next(batches)
            training_step(job, training, network, batch)
        synchronize(process.device)
    elapsed_s = time.perf_counter() - started_s
    waited_s = job.feed.waiting.seconds - waited_before_s
    rate = settings.num_steps * settings.batch_size / elapsed_s
    dtype = network_dtype(job.execution.precision, process.device.type)
    return (
        f"step {settings.recipe}, {len(job.feed.views)} views of {job.recipe.views.size_px} px, "
        f"batch {settings.batch_size}, {dtype}, {process.num_processes} x {process.device.type}: "
        f"{rate:.1f} images/s, {100 * waited_s / elapsed_s:.1f} % waiting for data"
    )


def jcl_step_report(settings: Benchmark, data: Path, folder: Path, process: Process) -> str:
    """Compare a step of JCL with a step of the mean InfoNCE over as many keys."""
    options = ["--queue-size", str(settings.queue_size)]
    names = ("multi_key/cifar10-cpu", "jcl/cifar10-cpu")
    moco, jcl = (start_training(name, settings, data, folder, process, *options) for name in names)
    batch = next(moco[1])
    networks = {run: wrap_network(run.job, run.method) for run, _ in (moco, jcl)}

    def step(training: Training) -> None:
        training_step(training.job, training, networks[training], batch)

    moco_s, jcl_s = time_in_turns(
        lambda: step(moco[0]), lambda: step(jcl[0]), settings.num_rounds, process.device
    )
    return (
        f"step of JCL beside MoCo's with as many forwards: {jcl_s / moco_s:.2f} times as long "
        f"({1e3 * moco_s:.0f} -> {1e3 * jcl_s:.0f} ms)"
    )


def start_training(
    recipe: str, settings: Benchmark, data: Path, folder: Path, process: Process, *more: str
) -> tuple[Training, Generator[Batch, None, None]]:
    """Return a run before its first step, and its batches."""
    options = ["--data", str(data), "--out", str(folder), "--device", settings.device]
    options += ["--precision", settings.precision, "--batch-size", str(settings.batch_size)]
    command = parse(recipe, [*options, "--steps", str(settings.num_steps + 2), *more])
    job = prepare(recipe, command, process)
    return Training(job), job.feed.batches(0, job.num_steps)


def write_noise_images(folder: Path, number: int) -> Path:
    """Write JPEG files of noise, 32 px; return their folder."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (number, 32, 32, 3), dtype=np.uint8)
    for place, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{place}.jpg")
    return folder
