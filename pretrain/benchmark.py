"""The pre-training step in images/s, and the streamed JCL loss beside the usual one.

python -m pretrain.benchmark [--recipe jcl/cifar10] [--data DIR]

Both ways of a ratio run in turns in this process, in processor time on a CPU and elapsed time on
a GPU; a ratio above 1 is in favor of this code. Without --data the images are noise.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from torch.profiler import ProfilerActivity, profile
from torchvision.models import resnet50

from pretrain.__main__ import parse
from pretrain.launch import DeviceChoice, launched
from pretrain.loop import Precision, Training, training_step
from pretrain.methods.jcl import jcl_loss
from pretrain.parts.momentum_encoder import MomentumEncoder
from pretrain.run import prepare

TEMPERATURE, COVARIANCE_WEIGHT = 0.2, 4.0


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What is measured, and how long."""

    recipe: str = "jcl/cifar10-cpu"
    data: Path | None = None
    """Folder of training images."""
    device: DeviceChoice = "auto"
    precision: Precision = "auto"
    batch_size: int = 64
    num_steps: int = 10
    """Of the training step, after two that are not counted."""
    num_rounds: int = 5
    """Of each ratio; medians are reported."""
    num_queries: int = 512
    """N of the loss."""
    queue_size: int = 65_536
    """K of the loss."""


def main(settings: Benchmark) -> None:
    """Print the three measurements."""
    with launched(settings.device) as process:
        print(f"device {process.device}, {torch.get_num_threads()} threads")
    with tempfile.TemporaryDirectory() as folder:
        print(step_report(settings, Path(folder)))
    print(loss_report(settings, process.device))
    print(momentum_report(settings, process.device))


def step_report(settings: Benchmark, folder: Path) -> str:
    """Images/s of whole training steps, and the share of their time spent waiting for views."""
    data = settings.data or noise_images(folder / "images", 4 * settings.batch_size)
    options = ["--data", str(data), "--out", str(folder), "--device", settings.device]
    options += ["--precision", settings.precision, "--batch-size", str(settings.batch_size)]
    command = parse(settings.recipe, [*options, "--steps", str(settings.num_steps + 2)])
    with launched(settings.device) as process:
        job = prepare(settings.recipe, command, process)
        training = Training(job)
        batches = job.feed.batches(0, job.num_steps)
        waited_s = 0.0
        for step in range(job.num_steps):
            if step == 2:
                synchronize(process.device)
                started_s, waited_s = time.perf_counter(), 0.0
            waiting_s = time.perf_counter()
            views = next(batches)
            waited_s += time.perf_counter() - waiting_s
            training_step(job, training, training.method, views)
        synchronize(process.device)
        taken_s = time.perf_counter() - started_s
    rate = settings.num_steps * settings.batch_size / taken_s
    return (
        f"step   {settings.recipe}, {job.feed.num_views} views of {job.recipe.views.size_px} px, "
        f"batch {settings.batch_size}, {command.execution.dtype(process.device.type)}: "
        f"{rate:.1f} images/s, {100 * waited_s / taken_s:.1f} % waiting for data"
    )


def noise_images(folder: Path, number: int) -> Path:
    """JPEG files of 32 px."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (number, 32, 32, 3), dtype=np.uint8)
    for place, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{place}.jpg")
    return folder


def usual_loss(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """Equation 8 with d x d covariances and all logits side by side."""
    mean = keys.mean(dim=1)
    centered = keys - mean[:, None]
    covariance = centered.mT @ centered / keys.shape[1]
    spread = torch.einsum("nd,nde,ne->n", query, covariance, query) / TEMPERATURE**2
    penalty = COVARIANCE_WEIGHT / 2 * spread
    positive = (query * mean).sum(dim=1) / TEMPERATURE + penalty
    logits = torch.cat([positive[:, None], query @ queue.T / TEMPERATURE], dim=1)
    labels = torch.zeros(len(query), dtype=torch.int64, device=query.device)
    return cross_entropy(logits, labels) + penalty.mean()


def streamed_loss(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    """The same from `pretrain`."""
    return jcl_loss(
        query, keys, queue, temperature=TEMPERATURE, covariance_weight=COVARIANCE_WEIGHT
    )


def loss_report(settings: Benchmark, device: torch.device) -> str:
    """Time and memory of loss and gradient, and how far the two ways are apart."""
    torch.manual_seed(0)
    size, num_keys, dim = settings.num_queries, 5, 128
    query = normalize(torch.randn(size, dim, device=device), dim=1).requires_grad_()
    spread = torch.randn(size, num_keys, dim, device=device) / dim**0.5
    keys = normalize(query.detach()[:, None] + 0.5 * spread, dim=2)
    queue = normalize(torch.randn(settings.queue_size, dim, device=device), dim=1)

    def gradient(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        (result,) = torch.autograd.grad(loss(query, keys, queue), query)
        return result

    usual_s, streamed_s = in_turns(
        lambda: gradient(usual_loss), lambda: gradient(streamed_loss), settings.num_rounds, device
    )
    usual_mb = peak_mb(lambda: gradient(usual_loss), device)
    streamed_mb = peak_mb(lambda: gradient(streamed_loss), device)
    expected = gradient(usual_loss)
    apart = (gradient(streamed_loss) - expected).norm() / expected.norm()
    return (
        f"loss   N {size}, M' {num_keys}, d {dim}, K {settings.queue_size}: "
        f"time {usual_s / streamed_s:.2f}x ({1e3 * usual_s:.0f} -> {1e3 * streamed_s:.0f} ms), "
        f"memory {usual_mb / streamed_mb:.1f}x ({usual_mb:.0f} -> {streamed_mb:.0f} MB), "
        f"gradients {apart:.0e} apart"
    )


def momentum_report(settings: Benchmark, device: torch.device) -> str:
    """The fused momentum update of a ResNet-50 beside a loop over its parameters."""
    encoder = resnet50().to(device)
    follower = MomentumEncoder(encoder, 0.999).to(device)

    def loop() -> None:
        pairs = zip(follower.network.parameters(), encoder.parameters(), strict=True)
        for own, other in pairs:
            own.data = own.data * 0.999 + other.data * (1 - 0.999)

    loop_s, fused_s = in_turns(
        loop, lambda: follower.follow(encoder), 4 * settings.num_rounds, device
    )
    return (
        f"momentum update of ResNet-50: {loop_s / fused_s:.1f}x "
        f"({1e3 * loop_s:.1f} -> {1e3 * fused_s:.1f} ms)"
    )


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


if __name__ == "__main__":
    main(tyro.cli(Benchmark, args=sys.argv[1:]))
