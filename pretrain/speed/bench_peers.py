"""Steps of our MoCo v2 and SimCLR beside those of lightly's modules, in one loop.

Both sides share loop, backbone, optimizer and views, so the ratio is that of heads, losses,
momentum update and queue. pretrain.benchmark prints it.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pretrain.data.feed import Batch
from pretrain.loop import Training, training_step
from pretrain.method import Method
from pretrain.parts.resnet import build_resnet
from pretrain.running.launch import Process
from pretrain.speed.bench_steps import start_training
from pretrain.speed.options import Benchmark
from pretrain.speed.timing import time_in_turns

HOW_TO_INSTALL = "pip install -e '.[compare]'"


def peer_reports(settings: Benchmark, data: Path, folder: Path, process: Process) -> list[str]:
    """Return a line for MoCo v2 and one for SimCLR; one that says why, if lightly is missing."""
    if importlib.util.find_spec("lightly") is None:
        return [f"lightly is not installed, so no step stands beside its steps: {HOW_TO_INSTALL}"]
    if process.num_processes > 1:
        return ["steps beside lightly's: skipped, since it is compared on one process"]
    from pretrain.speed.peers import LightlyMoCo, LightlySimCLR

    scale = "cifar10" if process.device.type == "cuda" else "cifar10-cpu"
    lines = []
    for name, peer in (("moco", LightlyMoCo), ("simclr", LightlySimCLR)):
        recipe = f"{name}/{scale}"
        # keys in one group, as in lightly's example
        more = ("--bn-splits", "1") if name == "moco" else ()
        ours, batches = start_training(recipe, settings, data, folder, process, *more)
        theirs = _with_method(ours, peer)
        ours_s, theirs_s = _step_seconds(ours, theirs, next(batches), settings.num_rounds)
        lines.append(
            f"step of {recipe} beside lightly's: {theirs_s / ours_s:.2f} times as fast "
            f"({1e3 * theirs_s:.0f} -> {1e3 * ours_s:.0f} ms)"
        )
    return lines


def _with_method(training: Training, peer: Callable[[nn.Module, int, Any], Method]) -> Training:
    """Return a run of another method with the same recipe and the same initial backbone."""
    job = training.job
    torch.manual_seed(job.feed.plan.seed)
    backbone, feature_dim = build_resnet(job.recipe.arch, job.recipe.stem)
    return Training(replace(job, method=peer(backbone, feature_dim, job.recipe.config)))


def _step_seconds(
    ours: Training, theirs: Training, batch: Batch, num_rounds: int
) -> tuple[float, float]:
    """Return the median seconds of a step of each, taken in turns on one batch."""

    def step(training: Training) -> None:
        training_step(training.job, training, training.method, batch)

    device = ours.job.process.device
    return time_in_turns(lambda: step(ours), lambda: step(theirs), num_rounds, device)
