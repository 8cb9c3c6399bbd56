"""Training steps of pre-training: images/s of a recipe, and steps of two methods beside each other.

JCL stands beside MoCo with as many forwards, our MoCo v2 and SimCLR beside those of lightly's
modules in the same loop, with the same views, so that the ratio is that of heads, losses, momentum
update and queue. The rate of a recipe is measured under torchrun, too, with the images of all
processes. Without --data the images are generated.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.speed.harness import compare
from pretrain.command import DeviceChoice, Precision, parse
from pretrain.data.feed import Batch
from pretrain.data.listing import find_images
from pretrain.launch import join_processes
from pretrain.loop import Training, training_step, wrap_network
from pretrain.parts.resnet import build_resnet
from pretrain.run import prepare
from transfer.datasets.synthetic.generate import generate

HOW_TO_INSTALL = "pip install -e '.[compare]'"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparisons."""

    recipe: str = "jcl/cifar10-cpu"
    """Recipe whose images/s are measured."""
    data: Path | None = None
    """Folder of training images."""
    device: DeviceChoice = "auto"
    precision: Precision = "auto"
    batch_size: int = 64
    steps: int = 10
    """Training steps that are timed at a time for the rate."""
    rounds: int = 5
    """Number of times that each way is timed."""


Start = Callable[..., tuple[Training, Generator[Batch, None, None]]]
"""Function that returns a run of a recipe, with options, before its first step, and its batches."""


def run(settings: Settings) -> None:
    """Print the rate of the recipe, then compare the steps of two methods each."""
    with join_processes(settings.device) as process, tempfile.TemporaryDirectory() as name:
        data = settings.data or Path(name)
        if settings.data is None:
            generate(data, keys=["pretrain"])
        options = f"--data {data} --out {name} --device {process.device.type}".split()
        options += f"--precision {settings.precision} --batch-size {settings.batch_size}".split()
        options += ["--steps", str((settings.rounds + 1) * settings.steps)]

        def start(recipe: str, *more: str) -> tuple[Training, Generator[Batch, None, None]]:
            command = parse(recipe, [*options, *more])
            job = prepare(recipe, command, process, find_images(command.data))
            return Training(job), job.feed.batches(0, job.num_steps)

        time_recipe(settings, start)
        moco, batches = start("multi_key/cifar10-cpu")
        jcl, _ = start("jcl/cifar10-cpu")
        trainings = {"MoCo with as many forwards": moco, "JCL": jcl}
        compare_steps(trainings, next(batches), settings.rounds)
        if importlib.util.find_spec("lightly"):
            scale = "cifar10" + "-cpu" * (process.device.type == "cpu")
            compare_with_lightly(start, scale, settings.rounds)
        else:
            print(f"no step stands beside lightly's: {HOW_TO_INSTALL}", file=sys.stderr)


def time_recipe(settings: Settings, start: Start) -> None:
    """Time whole steps of the recipe; a run itself prints how long they wait for data."""
    training, batches = start(settings.recipe)
    job = training.job
    network = wrap_network(job, training.method)

    def train() -> None:
        for _ in range(settings.steps):
            training_step(job, training, network, next(batches))

    place = f"{job.process.num_processes} x {job.process.device.type}"
    with closing(batches):
        compare(
            f"{settings.recipe} in {settings.precision} precision, {place}",
            {f"{settings.steps} steps of {settings.batch_size} images": train},
            settings.rounds,
            num_images=settings.steps * settings.batch_size,
            wall=True,
        )


def compare_steps(trainings: Mapping[str, Training], batch: Batch, rounds: int) -> None:
    """Compare a step of several runs on one batch."""
    ways = {
        name: partial(training_step, run.job, run, wrap_network(run.job, run.method), batch)
        for name, run in trainings.items()
    }
    size = len(batch.views[0])
    title = f"step of {' beside '.join(trainings)}, batch {size}"
    compare(title, ways, rounds, num_images=size)


def compare_with_lightly(start: Start, scale: str, rounds: int) -> None:
    """Compare the steps of MoCo v2 and of SimCLR with lightly's, from the same backbone."""
    from benchmarks.speed.lightly_methods import LightlyMethod

    # keys in one group, as in lightly's example
    for name, options in (("moco", ("--bn-splits", "1")), ("simclr", ())):
        ours, batches = start(f"{name}/{scale}", *options)
        job = ours.job
        torch.manual_seed(job.feed.plan.seed)
        theirs = LightlyMethod(*build_resnet(job.recipe.arch, job.recipe.stem), job.recipe.config)
        runs = {f"lightly's {name}": Training(replace(job, method=theirs)), f"our {name}": ours}
        compare_steps(runs, next(batches), rounds)
